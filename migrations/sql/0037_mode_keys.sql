-- The seed of the key with which modes are signed that Redis has for gates (ADR 15): whoever may publish modes reads it,
-- and no gate.
-- gen_random_uuid has 122 bits from the system's strong source each time.
CREATE TABLE mode_keys (
    seed bytea PRIMARY KEY CHECK (length(seed) = 32)
);
INSERT INTO mode_keys SELECT sha256(convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8'))
FROM generate_series(1, 4);
