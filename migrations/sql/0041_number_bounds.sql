-- What weir reads of modes is what it writes: numbers that it gives (at most 2^50: Redis counts in doubles), a canary
-- at one of its steps, moments that there are. A row that was edited by hand is refused here, not by a stage that
-- reads it.
ALTER TABLE rule_modes
    ADD CONSTRAINT rule_modes_generation CHECK (generation BETWEEN 0 AND 1125899906842624),
    ADD CONSTRAINT rule_modes_changed CHECK (isfinite(changed_at)),
    ADD CONSTRAINT rule_modes_step CHECK (mode <> 'canary' OR (isfinite(canary_since)
        AND canary_step BETWEEN 1 AND cardinality(canary_steps)
        AND canary_share BETWEEN 1 AND 10000
        AND canary_hold BETWEEN 0 AND 3155760000)); -- a hundred years
ALTER TABLE rule_numbers ADD CONSTRAINT rule_numbers_floor CHECK (floor BETWEEN 0 AND 1125899906842624);

-- What a version says stays, and that it was there: whoever may change no row may not take all of them away.
CREATE TRIGGER rule_versions_remain BEFORE TRUNCATE ON rule_versions FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER allow_versions_remain BEFORE TRUNCATE ON allow_versions FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER pending_versions_remain BEFORE TRUNCATE ON pending_versions FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER rule_texts_remain BEFORE TRUNCATE ON rule_texts FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER dossiers_remain BEFORE TRUNCATE ON dossiers FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
