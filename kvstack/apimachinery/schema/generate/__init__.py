"""Making the table: documents of a release → text tables (sources) → one data file."""
