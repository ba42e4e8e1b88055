-- The key with which consoles seal the secrets that browsers hold: one that no console of this installation has given is told without a look into
-- the tables, so that nobody wears them out by making secrets up. gen_random_uuid has 122 bits from the system's strong source each time.
CREATE TABLE session_keys (
    key bytea PRIMARY KEY
);
INSERT INTO session_keys SELECT sha256(convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8')) FROM generate_series(1, 4);
