-- How far an episode over a limit, or over one on trial, had been told to be by the end of a minute of append time. The row of the episode says how
-- far it is by now; a question about a time that is over (a dossier) is answered from here, so that the answer stays while the episode goes on.
-- An episode is cut after a day, and points are kept for 25 hours (history/retention).
CREATE TABLE hit_points (
    id         text COLLATE "C" NOT NULL,
    minute     timestamptz NOT NULL,
    rule       text COLLATE "C" NOT NULL,
    merged     boolean NOT NULL,  -- it had been joined to another one
    first      timestamptz,       -- NULL: of running counts alone, which do not tell
    last       timestamptz NOT NULL,
    events     bigint NOT NULL,
    peak       bigint NOT NULL,
    users      bigint NOT NULL,
    devices    bigint NOT NULL,
    refused    bigint NOT NULL,
    known_good smallint NOT NULL,
    samples    bigint NOT NULL,   -- how many of the row's had been told
    at_least   boolean NOT NULL,
    PRIMARY KEY (id, minute)
);
CREATE INDEX hit_points_rule ON hit_points (rule, minute);

-- The generation with which a rule's canary fell back into shadow. Every setting of the mode has another one, also by a build that does not know this.
ALTER TABLE rule_modes ADD COLUMN fell_generation bigint;

CREATE OR REPLACE VIEW rules_v AS
SELECT v.rule, v.version, v.lineage, m.mode, m.generation, m.changed_at, m.changed_by, m.reason AS mode_reason,
       m.removed, v.created_at, v.author, v.reason, v.source,
       v.owner, v.rule_limit, v.window_length, v.block_ttl, v.block_extend, v.cooldown, v.lateness, v.max_lag,
       m.mode = 'shadow' AND m.fell_generation IS NOT DISTINCT FROM m.generation AS fell_back
FROM rule_versions_v v
JOIN rule_modes m ON m.rule = v.rule
WHERE v.version = (SELECT max(n.version) FROM rule_versions n WHERE n.rule = v.rule);

-- When limits were raised, and to what: raised_limits has the raises that stand. What a raised limit hides is no evidence of the limit that the
-- document has.
CREATE TABLE limit_raises (
    rule       text COLLATE "C" NOT NULL,
    rule_limit bigint NOT NULL,
    since      timestamptz NOT NULL,
    until      timestamptz NOT NULL -- when it was to end or, where somebody ended it before, that time
);
CREATE INDEX limit_raises_rule ON limit_raises (rule, until);
INSERT INTO limit_raises (rule, rule_limit, since, until) SELECT rule, rule_limit, set_at, until FROM raised_limits;

CREATE FUNCTION limit_raised() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        UPDATE limit_raises SET until = clock_timestamp() WHERE rule = OLD.rule AND until > clock_timestamp();
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO limit_raises (rule, rule_limit, since, until) VALUES (NEW.rule, NEW.rule_limit, NEW.set_at,
            NEW.until);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER raised_limits_change AFTER INSERT OR UPDATE OR DELETE
    ON raised_limits FOR EACH ROW EXECUTE FUNCTION limit_raised();
