-- The reconcilers ask every minute for the releases that hold: few among the decisions that hold, by whose index the table
-- was read as a whole.
CREATE INDEX block_decisions_released ON block_decisions (until) WHERE action = 'released';
