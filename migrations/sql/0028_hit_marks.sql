-- Whoever changes a row of an episode that has ended marks its rule in its hour, whose sums (step 27) do not hold then.
--
-- The keeper waits, by the lock, for those who have looked whether an hour has sums.
CREATE FUNCTION hit_changed() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('weir hit sums ' || current_schema(), 0));
    INSERT INTO hit_sums_stale AS s (hour, rule)
    SELECT h.hour, c.rule
    FROM (SELECT OLD.rule AS rule, date_trunc('hour', OLD.last, 'UTC') AS hour WHERE TG_OP <> 'INSERT' AND OLD.phase = 3
          UNION SELECT NEW.rule, date_trunc('hour', NEW.last, 'UTC') WHERE TG_OP <> 'DELETE' AND NEW.phase = 3) c
    JOIN hit_hours h ON h.hour = c.hour
    WHERE NOT EXISTS (SELECT FROM hit_sums_stale m WHERE m.hour = h.hour AND m.rule = c.rule AND NOT m.making)
    ORDER BY h.hour, c.rule
    ON CONFLICT (hour, rule) DO UPDATE SET making = false, since = now();
    RETURN NULL;
END $$;

-- 50 minutes: an hour gets its sums an hour after its end at the earliest, and whoever changes rows has ended within ten minutes.
CREATE TRIGGER hits_by_day_added AFTER INSERT ON hits_by_day FOR EACH ROW
    WHEN (NEW.phase = 3 AND NEW.last < now() - interval '50 minutes') EXECUTE FUNCTION hit_changed();
CREATE TRIGGER hits_by_day_changed AFTER UPDATE ON hits_by_day FOR EACH ROW
    WHEN (OLD.phase = 3 AND OLD.last < now() - interval '50 minutes' OR NEW.phase = 3 AND NEW.last < now() - interval '50 minutes')
    EXECUTE FUNCTION hit_changed();
CREATE TRIGGER hits_by_day_removed AFTER DELETE ON hits_by_day FOR EACH ROW
    WHEN (OLD.phase = 3) EXECUTE FUNCTION hit_changed();
CREATE TRIGGER hits_added AFTER INSERT ON hits FOR EACH ROW
    WHEN (NEW.stream = 'live' AND NEW.phase = 3 AND NEW.last < now() - interval '50 minutes') EXECUTE FUNCTION hit_changed();
CREATE TRIGGER hits_changed AFTER UPDATE ON hits FOR EACH ROW
    WHEN (NEW.stream = 'live' AND (OLD.phase = 3 AND OLD.last < now() - interval '50 minutes' OR NEW.phase = 3 AND NEW.last < now() - interval '50 minutes'))
    EXECUTE FUNCTION hit_changed();
CREATE TRIGGER hits_removed AFTER DELETE ON hits FOR EACH ROW
    WHEN (OLD.stream = 'live' AND OLD.phase = 3) EXECUTE FUNCTION hit_changed();
