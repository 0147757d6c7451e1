"""The bytes of a segment as entries, batches and records. ``definition`` says what a batch holds; ``records`` reads many at once."""
