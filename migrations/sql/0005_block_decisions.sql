-- Everything that ENFORCE did, or chose not to do, to a block.

CREATE TABLE block_decisions (
    stream      text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    action      text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL,
    rule        text COLLATE "C" NOT NULL,
    subject     text COLLATE "C" NOT NULL,
    ip          cidr,
    device      text COLLATE "C",
    user_id     text COLLATE "C",
    api_key     text COLLATE "C",
    session     text COLLATE "C",
    hit         text COLLATE "C" NOT NULL,
    generation  bigint NOT NULL,
    since       timestamptz,
    until       timestamptz,
    at          timestamptz NOT NULL,
    decided_by  text COLLATE "C" NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, id)
);
CREATE INDEX block_decisions_at ON block_decisions (stream, at);
CREATE INDEX block_decisions_until ON block_decisions (until) WHERE action IN ('written', 'extended', 'released');
CREATE INDEX block_decisions_subject ON block_decisions USING hash (subject);
CREATE INDEX block_decisions_hit ON block_decisions USING hash (hit);
CREATE INDEX block_decisions_ip ON block_decisions (ip) WHERE ip IS NOT NULL;
CREATE INDEX block_decisions_device ON block_decisions USING hash (device);
CREATE INDEX block_decisions_user ON block_decisions USING hash (user_id);
CREATE INDEX block_decisions_api_key ON block_decisions USING hash (api_key);
CREATE INDEX block_decisions_session ON block_decisions USING hash (session);
