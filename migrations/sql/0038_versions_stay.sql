-- What a version of a rule or of an allow list says stays as it is for whoever owns the schema, too: grants alone kept
-- it from others. Of a pending version only its end is written later. The reason is free text: the erasure of a person
-- replaces what it says of him.
CREATE TRIGGER rule_versions_stay BEFORE DELETE
    OR UPDATE OF rule, version, lineage, document, source, hash, author, created_at
    ON rule_versions FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER allow_versions_stay BEFORE DELETE
    OR UPDATE OF list, version, document, hash, removed, author, created_at
    ON allow_versions FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER pending_versions_stay BEFORE DELETE
    OR UPDATE OF rule, version, lineage, document, source, hash, author, created_at
    ON pending_versions FOR EACH ROW EXECUTE FUNCTION refuse_change();
