-- Blocks that people order, and addresses that they keep from being blocked, beside what rules and the configuration say.

-- One row for each order. ENFORCE carries it out: its block has the order's id for a hit, so that releases, decisions and refusals name it as they
-- name an episode.
CREATE TABLE block_orders (
    id         text COLLATE "C" PRIMARY KEY, -- 32 hex digits; refused clients are told the first 16
    rule       text COLLATE "C" NOT NULL,    -- by-hand, or by-hand-… for those that hold what a match describes
    subject    text COLLATE "C" NOT NULL,
    ip         cidr, -- of the subject, where it has them
    device     text COLLATE "C",
    user_id    text COLLATE "C",
    api_key    text COLLATE "C",
    session    text COLLATE "C",
    match      text NOT NULL,                -- JSON: the requests that are held; {} for all
    since      timestamptz NOT NULL DEFAULT now(),
    until      timestamptz NOT NULL,
    ordered_by text NOT NULL,
    via        text NOT NULL,                -- how who ordered it came
    reason     text NOT NULL,
    outcome    text NOT NULL DEFAULT '',     -- what became of the last try; empty: ENFORCE has not tried
    done_at    timestamptz                   -- when ENFORCE had its last word; null: it tries on, until the order's end
);
CREATE INDEX block_orders_until ON block_orders (until);

-- Prefixes that people keep from being blocked at run time, beside the configuration's never_block. A row that was removed stays, so that the greatest
-- revision is that of the newest change.
CREATE SEQUENCE never_block_revision;
CREATE TABLE never_block_entries (
    prefix     cidr PRIMARY KEY,
    until      timestamptz, -- when it ends; null: it does not
    added_by   text NOT NULL,
    via        text NOT NULL,
    reason     text NOT NULL,
    added_at   timestamptz NOT NULL DEFAULT now(),
    removed_at timestamptz,
    revision   bigint NOT NULL DEFAULT nextval('never_block_revision')
);
