-- What keeps a number from being given twice where this database comes back older than it was: generations of
-- modes, versions and lineages of rules, routing versions and revisions of the never-block list are greater than
-- floor. ADR 0014 says why.
CREATE TABLE rule_numbers (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    floor        bigint NOT NULL DEFAULT 0,
    -- store_life() and this table's oid when rules were changed last; empty: not yet
    life         text NOT NULL DEFAULT '',
    installation text NOT NULL DEFAULT gen_random_uuid()::text -- names whose a Redis is; no secret
);
INSERT INTO rule_numbers DEFAULT VALUES;

-- Which server this is, and which of its timelines: another one after a failover, or a restore to a moment. Empty
-- where the server does not say.
CREATE FUNCTION store_life() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8);
EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function
    OR object_not_in_prerequisite_state THEN
    RETURN '';
END
$$;
