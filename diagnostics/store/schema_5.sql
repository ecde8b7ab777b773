-- oversharp store, schema version 5: samples that other tools drew, and grades by more than one verifier.

-- What other tools do not tell is NULL: their samples may lack tokens, log-probabilities and why they ended.
CREATE TABLE samples_5 (
    checkpoint_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    settings_id VARCHAR NOT NULL,
    greedy BOOLEAN NOT NULL,
    sample_index INTEGER NOT NULL,      -- 0, 1, …; 0 for the greedy response
    response_id VARCHAR NOT NULL,       -- content hash of text
    text VARCHAR NOT NULL USING COMPRESSION zstd,
    token_ids INTEGER[],                -- response tokens incl. end; NULL if unknown: such samples are not scored
    n_tokens INTEGER,                   -- response tokens incl. end
    finish_reason VARCHAR CHECK (finish_reason IN ('stop', 'length')),
    logp_sum_raw DOUBLE CHECK (NOT isnan(logp_sum_raw)),  -- nats, temperature 1, no truncation
    entropy_sum DOUBLE CHECK (isfinite(entropy_sum))      -- nats, of the distributions drawn from
);
INSERT INTO samples_5 SELECT * FROM samples;
DROP TABLE samples;
ALTER TABLE samples_5 RENAME TO samples;

-- 'recorded': no weights were seen, its samples came from another tool; identified by series and step.
CREATE TABLE checkpoints_5 (
    checkpoint_id VARCHAR PRIMARY KEY,  -- hash of the weights
    kind VARCHAR NOT NULL CHECK (kind IN ('full', 'lora', 'recorded'))
);
INSERT INTO checkpoints_5 SELECT * FROM checkpoints;
DROP TABLE checkpoints;
ALTER TABLE checkpoints_5 RENAME TO checkpoints;

-- Sampling settings; their hash is part of every sample's identity. NULL: another tool drew and did not tell.
CREATE TABLE settings_5 (
    settings_id VARCHAR PRIMARY KEY,
    sampler VARCHAR NOT NULL,           -- the engine, or the tool whose dump was imported
    temperature DOUBLE,
    top_p DOUBLE,
    top_k INTEGER,
    max_tokens INTEGER,
    prompt_template VARCHAR,
    system_prompt VARCHAR,
    chat BOOLEAN,
    seed BIGINT,
    dtype VARCHAR
);
INSERT INTO settings_5 SELECT * FROM settings;
DROP TABLE settings;
ALTER TABLE settings_5 RENAME TO settings;

-- One row per (problem_id, response_id, verifier), shared by all checkpoints. The single writer keeps it so with an
-- anti-join: a primary key's index took most of the time that importing a dump takes.
CREATE TABLE grades_5 (
    problem_id VARCHAR NOT NULL,
    response_id VARCHAR NOT NULL,
    verifier VARCHAR NOT NULL,          -- 'recorded:TOOL': the score that the tool gave
    answer VARCHAR NOT NULL,            -- canonical final answer; 'NA' where none was found
    mode VARCHAR,                       -- canonical solution, the mode of Definition 2.1 [A]
    reward DOUBLE NOT NULL CHECK (isfinite(reward)),
    correct BOOLEAN NOT NULL,
    state VARCHAR NOT NULL CHECK (state IN ('ok', 'parse_fail', 'timeout', 'error')),
    reason VARCHAR NOT NULL
);
INSERT INTO grades_5 SELECT * FROM grades;
DROP TABLE grades;
ALTER TABLE grades_5 RENAME TO grades;

-- Whose grades an audit uses; NULL: each problem's own verifier.
ALTER TABLE audits ADD COLUMN verifier VARCHAR;

-- Files of other tools, by their content, and how far they were read.
CREATE TABLE imports (
    series VARCHAR NOT NULL,
    file_hash VARCHAR NOT NULL,
    path VARCHAR NOT NULL,              -- where it was read last
    format VARCHAR NOT NULL,
    verifier VARCHAR NOT NULL,          -- who grades its samples
    n_bytes BIGINT NOT NULL,            -- the file's size
    lines_done BIGINT NOT NULL,         -- lines, rows or archive members read
    n_samples BIGINT NOT NULL,          -- samples taken from it
    complete BOOLEAN NOT NULL,
    PRIMARY KEY (series, file_hash)
);

-- Records that could not be used: how many of a file for which reason, and where the first is.
CREATE TABLE import_faults (
    series VARCHAR NOT NULL,
    file_hash VARCHAR NOT NULL,
    why VARCHAR NOT NULL,
    n BIGINT NOT NULL,
    first_line BIGINT NOT NULL,
    PRIMARY KEY (series, file_hash, why)
);

-- ---------------------------------------------------------------- public views

CREATE OR REPLACE VIEW current_audits AS
SELECT *
FROM audits
QUALIFY row_number() OVER (PARTITION BY series ORDER BY updated_at DESC, audit_id) = 1;

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
    CASE WHEN g.verifier NOT LIKE 'recorded:%' THEN g.state END AS state,  -- another tool does not tell
    g.reason,
    s.sample_index < w.n_common AS common,  -- one of the first n_common: as many at every checkpoint
    w.n_planned,
    w.n_common
FROM planned_samples AS w
JOIN current_audits AS a USING (audit_id)
JOIN problems AS p USING (problem_id)
JOIN samples AS s
    ON s.checkpoint_id = w.checkpoint_id
    AND s.problem_id = w.problem_id
    AND s.settings_id = w.settings_id
    AND s.sample_index < w.n_planned
JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = coalesce(a.verifier, p.verifier);

-- The panel: responses sampled once from the base, and the log-probability that every checkpoint gives them.
CREATE OR REPLACE VIEW panel_logps AS
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
    AND g.verifier = coalesce(a.verifier, p.verifier)
JOIN response_logps AS r
    ON r.checkpoint_id = c.checkpoint_id
    AND r.problem_id = s.problem_id
    AND r.settings_id = a.settings_id
    AND r.response_id = s.response_id;

-- The first own samples of every checkpoint: log-probability by the sampler, by its own scorer, under the base.
CREATE OR REPLACE VIEW own_logps AS
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
    AND g.verifier = coalesce(a.verifier, p.verifier)
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

-- Samples of the current audits that grade again: what that verifier says beside what the problem's own says.
CREATE VIEW regraded_samples AS
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
    a.verifier,
    g.answer,
    g.correct,
    g.state,
    own.verifier AS own_verifier,
    own.answer AS own_answer,
    own.correct AS own_correct,
    own.state AS own_state
FROM planned_samples AS w
JOIN current_audits AS a
    ON a.audit_id = w.audit_id
    AND a.verifier IS NOT NULL
JOIN problems AS p USING (problem_id)
JOIN samples AS s
    ON s.checkpoint_id = w.checkpoint_id
    AND s.problem_id = w.problem_id
    AND s.settings_id = w.settings_id
    AND s.sample_index < w.n_planned
JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = a.verifier
JOIN grades AS own
    ON own.problem_id = s.problem_id
    AND own.response_id = s.response_id
    AND own.verifier = p.verifier
    AND own.verifier <> a.verifier;

-- Responses that one verifier calls correct and the other does not.
CREATE VIEW grade_disagreements AS
WITH disagreed AS (
    SELECT
        series, checkpoint, step, checkpoint_id, problem_id, response_id,
        verifier, answer, correct, state,
        own_verifier, own_answer, own_correct, own_state,
        count(*) AS n
    FROM regraded_samples
    WHERE NOT greedy AND correct <> own_correct
    GROUP BY ALL
),
texts AS (
    SELECT problem_id, response_id, any_value(text) AS text
    FROM samples
    SEMI JOIN disagreed USING (problem_id, response_id)
    GROUP BY ALL
)
SELECT d.*, t.text
FROM disagreed AS d
JOIN texts AS t USING (problem_id, response_id);
