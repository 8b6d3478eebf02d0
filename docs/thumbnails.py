"""Small pictures of the notebooks for their gallery, from the figures that they have written.

for script in examples/*.py; do python $script; done && python docs/thumbnails.py examples-output
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parent / "_static" / "thumbnails"
WIDTH, HEIGHT = 360, 240
#: The figure that stands for a notebook.
FIGURES = {
    "calibration": "calibration_ranks",
    "choosing_a_basis": "choosing_prediction",
    "classification_and_counts": "classification",
    "delayed_flights": "delayed_flights",
    "discrete_weights": "discrete_maps",
    "exact_and_sparse": "methods",
    "gappy_weather": "gappy_weather",
    "hourly_departures": "hourly_departures",
    "missing_outputs": "missing_outputs",
    "quickstart": "co2",
    "ragged_groups": "ragged_groups_seasons",
    "relevance_vectors": "relevance_sinc",
    "seasonal_series": "seasonal_components",
    "space_time": "space_time",
    "spatial": "spatial_map",
    "type1_vs_type2": "type1_vs_type2",
}


def main() -> None:
    folder = Path(sys.argv[1])
    FOLDER.mkdir(exist_ok=True)
    for notebook, figure in FIGURES.items():
        with Image.open(folder / f"{figure}.png") as full:
            picture = full.convert("RGB")
        picture.thumbnail((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
        page = Image.new("RGB", (WIDTH, HEIGHT), "white")
        page.paste(picture, ((WIDTH - picture.width) // 2, (HEIGHT - picture.height) // 2))
        page.quantize(64).save(FOLDER / f"{notebook}.png", optimize=True)


if __name__ == "__main__":
    main()
