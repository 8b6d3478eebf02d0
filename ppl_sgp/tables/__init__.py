"""Tables of other libraries: rows read by the names of columns, and numbers made of them by a frozen recipe."""
