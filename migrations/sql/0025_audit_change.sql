-- What an act changed, and how who did it came. Empty: the act changes nothing that has a value, or a build before this one wrote the
-- entry; such a build names none of the columns, and goes on.
ALTER TABLE audit
    ADD COLUMN before text NOT NULL DEFAULT '',
    ADD COLUMN after  text NOT NULL DEFAULT '',
    ADD COLUMN via    text NOT NULL DEFAULT ''; -- oidc, token, local; empty: a program that nobody asked, or not known

CREATE OR REPLACE VIEW audit_v AS
SELECT seq, at, actor, action, object, reason, detail, before, after, via
FROM audit;
