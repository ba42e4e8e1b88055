-- Versions of rules that block which may block more: counted beside the one that acts, never enforced. Those that act, or acted, are in
-- rule_versions, where a promotion puts them too: a build that does not know of pending versions finds none there.
CREATE TABLE pending_versions (
    rule       text COLLATE "C" NOT NULL,
    version    bigint NOT NULL, -- greater than all numbers that the rule had before, here and in rule_versions
    lineage    bigint NOT NULL, -- the same
    document   text NOT NULL,
    source     text NOT NULL,
    hash       bytea NOT NULL,
    created_at timestamptz NOT NULL,
    author     text NOT NULL,
    reason     text NOT NULL,
    ended_at   timestamptz,     -- NULL: it is pending
    outcome    text CHECK (outcome IN ('promoted', 'adopted', 'replaced', 'withdrawn', 'removed')),
    PRIMARY KEY (rule, version),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
);

CREATE UNIQUE INDEX pending_versions_one ON pending_versions (rule) WHERE ended_at IS NULL;

-- Limits that are raised until a time of events. A row stays when its time is over, for events that come late.
CREATE TABLE raised_limits (
    rule       text COLLATE "C" PRIMARY KEY,
    rule_limit bigint NOT NULL,
    until      timestamptz NOT NULL,
    set_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    set_by     text NOT NULL,
    reason     text NOT NULL
);
