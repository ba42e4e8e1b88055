-- Texts that a version of a rule got after it was stored: other comments, notation or tests of the same document.
-- What was stored stays as it was, in rule_versions and pending_versions; the newest of these is what people are
-- shown. Rows are added, never changed.
CREATE TABLE rule_texts (
    number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rule    text COLLATE "C" NOT NULL,
    version bigint NOT NULL, -- of rule_versions or pending_versions
    source  text NOT NULL,
    author  text NOT NULL,
    reason  text NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX rule_texts_version ON rule_texts (rule, version, number);
CREATE TRIGGER rule_texts_stay BEFORE UPDATE OR DELETE ON rule_texts FOR EACH ROW EXECUTE FUNCTION refuse_change();
