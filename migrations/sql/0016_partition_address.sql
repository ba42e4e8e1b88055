-- Where the owner of a keyed partition answers what it counts (weir counters show). Builds before this one report none: they leave the
-- address of the owner before, which answers that the partition is another's.
ALTER TABLE partition_states ADD COLUMN address text NOT NULL DEFAULT '';
