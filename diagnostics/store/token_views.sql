-- Views over the Parquet files beside the store, made anew whenever the store is opened: a store can be moved with them.
-- They need the relation response_tokens(checkpoint_id, problem_id, settings_id, response_id, token_logps, token_entropies).

-- The panel's responses under every checkpoint, token by token, in nats.
CREATE OR REPLACE TEMP VIEW panel_tokens AS
SELECT
    p.series,
    p.checkpoint,
    p.step,
    p.is_base,
    p.checkpoint_id,
    p.problem_id,
    p.sample_index,
    p.response_id,
    p.correct,
    t.token_logps,
    t.token_entropies
FROM panel_logps AS p
JOIN current_audits AS a USING (series)
JOIN response_tokens AS t
    ON t.checkpoint_id = p.checkpoint_id
    AND t.problem_id = p.problem_id
    AND t.settings_id = a.settings_id
    AND t.response_id = p.response_id;

-- The checkpoint's own samples under itself, token by token, in nats.
CREATE OR REPLACE TEMP VIEW own_tokens AS
SELECT
    a.series,
    c.checkpoint,
    c.step,
    c.is_base,
    c.checkpoint_id,
    s.problem_id,
    s.sample_index,
    s.response_id,
    t.token_logps,
    t.token_entropies
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_problems AS ap USING (audit_id)
JOIN samples AS s
    ON s.checkpoint_id = c.checkpoint_id
    AND s.problem_id = ap.problem_id
    AND s.settings_id = a.settings_id
    AND NOT s.greedy
    -- what was scored for its own sake: others have scores too where they read like a mode or a panel response
    AND s.sample_index < CASE WHEN c.is_base THEN a.n_base ELSE a.n END
    AND (s.sample_index < a.panel OR (s.entropy_sum IS NULL AND s.sample_index < a.entropy_samples))
JOIN response_tokens AS t
    ON t.checkpoint_id = s.checkpoint_id
    AND t.problem_id = s.problem_id
    AND t.settings_id = s.settings_id
    AND t.response_id = s.response_id;

-- Responses of the training batches between two checkpoints, under the later and the earlier one, token by token.
CREATE OR REPLACE TEMP VIEW training_tokens AS
WITH pairs AS (
    SELECT
        series,
        checkpoint,
        step,
        checkpoint_id,
        lag(checkpoint_id) OVER (PARTITION BY series ORDER BY step) AS before_id
    FROM series_checkpoints
)
SELECT
    p.series,
    p.checkpoint,
    p.step,
    p.checkpoint_id,
    r.problem_id,
    r.response_id,
    r.correct,
    now.token_logps,
    before.token_logps AS token_logps_before
FROM current_audits AS a
JOIN pairs AS p USING (series)
JOIN training_responses AS r
    ON r.series = p.series
    AND r.step = p.step
JOIN response_tokens AS now
    ON now.checkpoint_id = p.checkpoint_id
    AND now.problem_id = r.problem_id
    AND now.settings_id = a.settings_id
    AND now.response_id = r.response_id
JOIN response_tokens AS before
    ON before.checkpoint_id = p.before_id
    AND before.problem_id = r.problem_id
    AND before.settings_id = a.settings_id
    AND before.response_id = r.response_id;
