-- Since when a partition of requests has stood before the gap that it stands before: who accepted a gap before
-- that meant another stop. NULL while it runs. A build that does not know this leaves it as it is.
ALTER TABLE partition_states ADD COLUMN stopped_at timestamptz;
