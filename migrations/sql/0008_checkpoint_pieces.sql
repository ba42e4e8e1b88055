-- A snapshot is stored in pieces of bounded size, each acknowledged by itself, and made current as a whole: then data of
-- its row in checkpoints is a mark, and its pieces are those of the row's epoch and attempt. One that is no larger than a
-- piece still lies in data, as all of those do that builds before this step write.
CREATE TABLE checkpoint_pieces (
    stream    text COLLATE "C" NOT NULL,
    partition bigint NOT NULL,
    epoch     bigint NOT NULL,
    attempt   bigint NOT NULL, -- tells apart the snapshots that one owner has begun
    number    bigint NOT NULL, -- from 0
    crc       bigint NOT NULL, -- CRC-32C of data
    data      bytea NOT NULL,
    PRIMARY KEY (stream, partition, epoch, attempt, number)
);
ALTER TABLE checkpoint_pieces ALTER COLUMN data SET STORAGE EXTERNAL;

ALTER TABLE checkpoints ADD COLUMN attempt bigint NOT NULL DEFAULT 0;
