-- Canary: a rule blocks a share of its block keys, which rises by steps. Where the mode is another one the columns say nothing: builds that
-- know of no canary leave them as they are.
ALTER TABLE rule_modes DROP CONSTRAINT rule_modes_mode_check;
ALTER TABLE rule_modes
    ADD COLUMN canary_share int,         -- of the block keys, in hundredths of a percent
    ADD COLUMN canary_step  int,         -- the present one of canary_steps, from 1
    ADD COLUMN canary_since timestamptz, -- when that began
    ADD COLUMN canary_steps int[],       -- as the document had them when the rule was promoted
    ADD COLUMN canary_hold  bigint,      -- how long a step lasts at least, in seconds
    ADD COLUMN predicted    text,        -- JSON of promotion.Prediction: what the dossier leads one to expect of the canary
    ADD COLUMN dossier      bytea,       -- hash of the dossier of the last promotion; NULL: it had none
    ADD CONSTRAINT rule_modes_mode_check CHECK (mode IN ('off', 'shadow', 'canary', 'block')),
    ADD CONSTRAINT rule_modes_canary CHECK (mode <> 'canary' OR num_nulls(canary_share, canary_step, canary_since, canary_steps, canary_hold, predicted) = 0);

-- The evidence on which rules were promoted, as it was shown: never changed.
CREATE TABLE dossiers (
    hash     bytea PRIMARY KEY, -- SHA-256 of document
    rule     text COLLATE "C" NOT NULL,
    version  bigint NOT NULL,
    document text NOT NULL,     -- canonical JSON of the dossier; text keeps it byte for byte
    since    timestamptz NOT NULL,
    until    timestamptz NOT NULL,
    made_at  timestamptz NOT NULL,
    made_by  text NOT NULL
);
CREATE INDEX dossiers_rule ON dossiers (rule, made_at);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is never changed', TG_TABLE_NAME;
END $$;
CREATE TRIGGER dossiers_stay BEFORE UPDATE ON dossiers FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- A build that knows of no canary takes a rule in canary for one that does not block, and would have an edit act at once that may block
-- more. Such a rule falls back to shadow with the edit. A build that knows says so, in its transaction.
CREATE FUNCTION end_unknown_canary() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('weir.knows_canary', true) IS DISTINCT FROM 'on' THEN
        UPDATE rule_modes SET mode = 'shadow', generation = generation + 1, changed_at = clock_timestamp(), changed_by = NEW.author,
            reason = 'edited by a build of weir that knows of no canary'
        WHERE rule = NEW.rule AND mode = 'canary';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER rule_versions_canary BEFORE INSERT ON rule_versions FOR EACH ROW EXECUTE FUNCTION end_unknown_canary();
