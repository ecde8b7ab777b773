-- oversharp store, schema version 2: more samples of the base, a fixed panel, token log-probabilities in Parquet.

-- A new table and not ALTER TABLE samples: DuckDB cannot replay that from the log of a killed process, for it binds
-- the table's CHECK before its function library is loaded.
CREATE TABLE samples_2 (
    checkpoint_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    settings_id VARCHAR NOT NULL,
    greedy BOOLEAN NOT NULL,
    sample_index INTEGER NOT NULL,      -- 0, 1, …; 0 for the greedy response
    response_id VARCHAR NOT NULL,       -- content hash of text
    text VARCHAR NOT NULL,
    token_ids INTEGER[],                -- response tokens incl. end; NULL if unknown: such samples are not scored
    n_tokens INTEGER NOT NULL,          -- response tokens incl. end
    finish_reason VARCHAR NOT NULL CHECK (finish_reason IN ('stop', 'length')),
    logp_sum_raw DOUBLE NOT NULL CHECK (NOT isnan(logp_sum_raw)),  -- nats, temperature 1, no truncation
    entropy_sum DOUBLE CHECK (isfinite(entropy_sum))  -- nats, of the distributions drawn from; NULL if unknown
);
INSERT INTO samples_2 SELECT *, NULL FROM samples;
DROP TABLE samples;
ALTER TABLE samples_2 RENAME TO samples;

ALTER TABLE audits ADD COLUMN n_base INTEGER;         -- samples per problem from the base
ALTER TABLE audits ADD COLUMN panel INTEGER;          -- responses per problem in the panel; 0 = no panel
ALTER TABLE audits ADD COLUMN panel_settings_id VARCHAR;  -- sampling settings of the panel
UPDATE audits SET n_base = n, panel = 0;

-- Samples planned per problem where an adaptive audit decided on them; without a row: n, and n_base from the base.
CREATE TABLE allocations (
    audit_id VARCHAR NOT NULL,
    checkpoint_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (audit_id, checkpoint_id, problem_id)
);

-- Responses of the training batches, from the run directory, up to `step` and after the checkpoint before.
CREATE TABLE training_responses (
    series VARCHAR NOT NULL,
    step INTEGER NOT NULL,              -- the checkpoint that these responses led to
    problem_id VARCHAR NOT NULL,        -- content hash of the prompt
    prompt VARCHAR NOT NULL,
    response_id VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    truncated BOOLEAN NOT NULL,
    correct BOOLEAN NOT NULL,
    PRIMARY KEY (series, step, problem_id, response_id)
);

-- A second teacher-forced score of the same response under the same weights, in a batch of another shape.
CREATE TABLE second_logps (
    checkpoint_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    settings_id VARCHAR NOT NULL,
    response_id VARCHAR NOT NULL,
    logp_sum DOUBLE NOT NULL CHECK (NOT isnan(logp_sum)),  -- nats
    PRIMARY KEY (checkpoint_id, problem_id, settings_id, response_id)
);

-- Parquet files beside the store, in the folder audit.tokens, one row per scored response:
-- checkpoint_id, problem_id, settings_id, response_id, token_logps FLOAT[], token_entropies FLOAT[] (nats).
CREATE TABLE token_files (
    file VARCHAR PRIMARY KEY
);

-- ---------------------------------------------------------------- public views

CREATE OR REPLACE VIEW current_audits AS
SELECT *
FROM audits
QUALIFY row_number() OVER (PARTITION BY series ORDER BY updated_at DESC, audit_id) = 1;

-- How many samples each problem of the current audits has at each checkpoint, and how many it has at every one.
CREATE VIEW planned_samples AS
WITH planned AS (
    SELECT
        a.audit_id,
        a.series,
        a.settings_id,
        c.checkpoint_id,
        c.checkpoint,
        c.step,
        c.is_base,
        ap.problem_id,
        CASE WHEN c.is_base THEN a.n_base ELSE coalesce(al.n, a.n) END AS n_planned
    FROM current_audits AS a
    JOIN series_checkpoints AS c USING (series)
    JOIN audit_problems AS ap USING (audit_id)
    LEFT JOIN allocations AS al USING (audit_id, checkpoint_id, problem_id)
)
SELECT
    *,
    min(n_planned) OVER (PARTITION BY audit_id, problem_id) AS n_common
FROM planned;

-- Graded samples of the current audits, one row per sample.
CREATE OR REPLACE VIEW graded_samples AS
SELECT
    w.series,
    w.checkpoint,
    w.step,
    w.is_base,
    s.checkpoint_id,
    p.task,
    s.problem_id,
    s.greedy,
    s.sample_index,
    s.response_id,
    s.text,
    s.n_tokens,
    s.finish_reason,
    s.logp_sum_raw,
    g.answer,
    g.mode,
    g.reward,
    g.correct,
    g.state,
    g.reason,
    s.sample_index < w.n_common AS common,  -- one of the first n_common: as many at every checkpoint
    w.n_planned,
    w.n_common
FROM planned_samples AS w
JOIN problems AS p USING (problem_id)
JOIN samples AS s
    ON s.checkpoint_id = w.checkpoint_id
    AND s.problem_id = w.problem_id
    AND s.settings_id = w.settings_id
    AND s.sample_index < w.n_planned
JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = p.verifier;

-- Samples and correct samples per problem and checkpoint (greedy excluded), as many of a problem at every checkpoint.
CREATE OR REPLACE VIEW problem_counts AS
SELECT
    series,
    checkpoint,
    step,
    is_base,
    checkpoint_id,
    task,
    problem_id,
    count(*) AS n,
    count(*) FILTER (correct) AS n_correct,
    n_common AS n_planned
FROM graded_samples
WHERE NOT greedy AND common
GROUP BY ALL;

-- The same over all samples: the base has more of them. The input of pass@k.
CREATE VIEW sampled_counts AS
SELECT
    series,
    checkpoint,
    step,
    is_base,
    checkpoint_id,
    task,
    problem_id,
    count(*) AS n,
    count(*) FILTER (correct) AS n_correct,
    n_planned
FROM graded_samples
WHERE NOT greedy
GROUP BY ALL;

-- How often each answer was given, among as many samples at every checkpoint: the input of the answer entropy.
CREATE OR REPLACE VIEW answer_counts AS
SELECT
    series,
    checkpoint,
    step,
    checkpoint_id,
    problem_id,
    answer,
    mode,
    correct,
    count(*) AS n,
    n_common AS n_planned
FROM graded_samples
WHERE NOT greedy AND common
GROUP BY ALL;

-- Token entropy of the checkpoint's own samples, in nats: from the sampler where it knows it, else teacher-forced.
CREATE OR REPLACE VIEW sample_entropies AS
SELECT
    a.series,
    c.checkpoint,
    c.step,
    c.checkpoint_id,
    s.problem_id,
    s.sample_index,
    coalesce(s.entropy_sum, r.entropy_sum) AS entropy_sum,
    s.n_tokens
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_problems AS ap USING (audit_id)
JOIN samples AS s
    ON s.checkpoint_id = c.checkpoint_id
    AND s.problem_id = ap.problem_id
    AND s.settings_id = a.settings_id
    AND NOT s.greedy
    AND s.sample_index < a.entropy_samples
LEFT JOIN response_logps AS r
    ON r.checkpoint_id = s.checkpoint_id
    AND r.problem_id = s.problem_id
    AND r.settings_id = s.settings_id
    AND r.response_id = s.response_id
WHERE coalesce(s.entropy_sum, r.entropy_sum) IS NOT NULL;

-- The panel: responses sampled once from the base, and the log-probability that every checkpoint gives them.
CREATE VIEW panel_logps AS
SELECT
    a.series,
    c.checkpoint,
    c.step,
    c.is_base,
    c.checkpoint_id,
    p.task,
    s.problem_id,
    s.sample_index,                     -- 0 … panel−1
    s.response_id,
    g.correct,
    r.logp_sum,                         -- nats, summed over n_tokens response tokens
    r.entropy_sum,
    r.n_tokens
FROM current_audits AS a
JOIN series_checkpoints AS b
    ON b.series = a.series
    AND b.is_base
JOIN series_checkpoints AS c ON c.series = a.series
JOIN audit_problems AS ap USING (audit_id)
JOIN problems AS p USING (problem_id)
JOIN samples AS s
    ON s.checkpoint_id = b.checkpoint_id
    AND s.problem_id = ap.problem_id
    AND s.settings_id = a.panel_settings_id
    AND NOT s.greedy
    AND s.sample_index < a.panel
JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = p.verifier
JOIN response_logps AS r
    ON r.checkpoint_id = c.checkpoint_id
    AND r.problem_id = s.problem_id
    AND r.settings_id = a.settings_id
    AND r.response_id = s.response_id;

-- The first own samples of every checkpoint: log-probability by the sampler, by its own scorer, under the base.
CREATE VIEW own_logps AS
SELECT
    a.series,
    c.checkpoint,
    c.step,
    c.is_base,
    c.checkpoint_id,
    p.task,
    s.problem_id,
    s.sample_index,
    s.response_id,
    g.correct,
    s.n_tokens,
    s.logp_sum_raw AS sampler_logp_sum,
    own.logp_sum AS own_logp_sum,       -- NULL: not scored under itself
    base.logp_sum AS base_logp_sum      -- NULL: not scored under the base
FROM current_audits AS a
JOIN series_checkpoints AS b
    ON b.series = a.series
    AND b.is_base
JOIN series_checkpoints AS c ON c.series = a.series
JOIN audit_problems AS ap USING (audit_id)
JOIN problems AS p USING (problem_id)
JOIN samples AS s
    ON s.checkpoint_id = c.checkpoint_id
    AND s.problem_id = ap.problem_id
    AND s.settings_id = a.settings_id
    AND NOT s.greedy
    AND s.sample_index < least(a.panel, CASE WHEN c.is_base THEN a.n_base ELSE a.n END)
JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = p.verifier
LEFT JOIN response_logps AS own
    ON own.checkpoint_id = c.checkpoint_id
    AND own.problem_id = s.problem_id
    AND own.settings_id = s.settings_id
    AND own.response_id = s.response_id
LEFT JOIN response_logps AS base
    ON base.checkpoint_id = b.checkpoint_id
    AND base.problem_id = s.problem_id
    AND base.settings_id = s.settings_id
    AND base.response_id = s.response_id
WHERE own.logp_sum IS NOT NULL OR base.logp_sum IS NOT NULL;

-- Responses scored twice under the same weights: how far rounding alone moves a log-probability.
CREATE VIEW repeated_logps AS
SELECT
    a.series,
    c.checkpoint,
    c.step,
    c.checkpoint_id,
    q.problem_id,
    q.response_id,
    r.logp_sum,
    q.logp_sum AS second_logp_sum,
    r.n_tokens
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_problems AS ap USING (audit_id)
JOIN second_logps AS q
    ON q.checkpoint_id = c.checkpoint_id
    AND q.problem_id = ap.problem_id
    AND q.settings_id = a.settings_id
JOIN response_logps AS r
    ON r.checkpoint_id = q.checkpoint_id
    AND r.problem_id = q.problem_id
    AND r.settings_id = q.settings_id
    AND r.response_id = q.response_id
WHERE EXISTS (
    FROM samples AS s
    JOIN series_checkpoints AS b
        ON b.series = a.series
        AND b.is_base
        AND b.checkpoint_id = s.checkpoint_id
    WHERE s.problem_id = q.problem_id
      AND s.response_id = q.response_id
      AND s.settings_id = a.panel_settings_id
      AND NOT s.greedy
      AND s.sample_index < a.panel
);
