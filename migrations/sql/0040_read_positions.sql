-- How far this database has what a stage has read of a topic: everything before next_offset. Kafka's commits say how
-- far the stage has read; where they say more, this database has come back older than it was, and is given the rest
-- again.
CREATE TABLE read_positions (
    stream      text COLLATE "C" NOT NULL,
    stage       text COLLATE "C" NOT NULL,
    partition   bigint NOT NULL,
    next_offset bigint NOT NULL,
    PRIMARY KEY (stream, stage, partition)
);
