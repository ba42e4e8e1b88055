-- How many bytes the windows of one keyed partition may take. It decides which keys are evicted, so it belongs to the
-- stream and not to a process.
ALTER TABLE streams ADD COLUMN keyed_budget bigint NOT NULL DEFAULT 268435456 CHECK (keyed_budget > 0);
