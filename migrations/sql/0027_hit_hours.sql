-- Sums of the live episodes that have ended, by the hour of their last over event: what is asked of days and months is read from them, and not
-- from the rows. They are made by history's keeper, an hour or more after the hour is over, and always anew from the rows.
--
-- Each change of a row that has ended marks its rule in its hour, whoever makes it: RECORD, of this build or an older one, erasure, retention. A
-- marked pair is read from the rows until the keeper has summed it up again. A row that changes soon after its last event is not looked for: its
-- hour has no sums yet.

-- Hours that have sums. Of one that is not ready the changes are marked already, and its sums are being made.
CREATE TABLE hit_hours (
    hour  timestamptz PRIMARY KEY,
    ready boolean NOT NULL
);

CREATE TABLE hit_sums (
    hour     timestamptz NOT NULL,
    rule     text COLLATE "C" NOT NULL,
    begun    timestamptz NOT NULL,     -- the hour of first
    episodes bigint NOT NULL,          -- rows: in hours and rules in which several is false, each is an episode
    events   bigint NOT NULL,
    refused  bigint NOT NULL,
    peak     bigint NOT NULL,
    first    timestamptz NOT NULL,
    last     timestamptz NOT NULL,
    several  boolean NOT NULL,         -- a source has rows for different blocks
    sources  bigint NOT NULL,          -- different ones
    hashes   bigint[] NOT NULL,        -- of the sources, ascending: the 256 least
    PRIMARY KEY (hour, rule, begun)
);

-- Rules whose sums in an hour do not hold. One that is being summed up again is marked anew by who changes a row meanwhile.
CREATE TABLE hit_sums_stale (
    hour   timestamptz NOT NULL,
    rule   text COLLATE "C" NOT NULL,
    since  timestamptz NOT NULL DEFAULT now(),
    making boolean NOT NULL DEFAULT false,
    PRIMARY KEY (hour, rule)
);
