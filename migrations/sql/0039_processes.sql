-- Processes that run now, and by how much their clocks differ from those of the stores that they talk to (weir doctor).
-- Gates tell of themselves in Redis: they have no database. Rows are written every 15 s, and deleted a day after the
-- last.
CREATE TABLE processes (
    instance text PRIMARY KEY,
    does text NOT NULL,             -- stages, console, ingest: joined by commas
    build text NOT NULL,
    offsets jsonb NOT NULL,         -- by store: seconds by which its clock is ahead of the process's, at the least
    reported_at timestamptz NOT NULL
);
