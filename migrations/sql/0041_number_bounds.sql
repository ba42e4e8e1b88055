-- What weir reads of modes is what it writes: numbers that it gives (at most 2^50: Redis counts in doubles), a canary
-- at one of its steps, moments that there are. A row that was edited by hand is refused here, not by a stage that
-- reads it.
ALTER TABLE rule_modes
    ADD CONSTRAINT rule_modes_generation CHECK (generation BETWEEN 0 AND 1125899906842624),
    ADD CONSTRAINT rule_modes_changed CHECK (isfinite(changed_at)),
    ADD CONSTRAINT rule_modes_step CHECK (mode <> 'canary' OR (isfinite(canary_since)
        AND canary_step BETWEEN 1 AND cardinality(canary_steps)
        AND canary_share BETWEEN 1 AND 10000 AND canary_hold BETWEEN 0 AND 3155760000)); -- a hundred years
ALTER TABLE rule_numbers ADD CONSTRAINT rule_numbers_floor CHECK (floor BETWEEN 0 AND 1125899906842624);
