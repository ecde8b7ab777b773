-- oversharp store, schema version 1.
-- Every column's meaning and unit is given here; `oversharp sql STORE` lists names and types.
-- Tables hold facts and are written by the audit; the views at the end are the public, stable interface.

CREATE TABLE schema_version (
    version INTEGER NOT NULL,
    applied_at TIMESTAMP NOT NULL DEFAULT current_timestamp,
    oversharp_version VARCHAR NOT NULL
);

-- One weights file set, identified by the content of its tensors.
CREATE TABLE checkpoints (
    checkpoint_id VARCHAR PRIMARY KEY,  -- hash of the weights
    kind VARCHAR NOT NULL CHECK (kind IN ('full', 'lora'))
);

CREATE TABLE series (
    series VARCHAR PRIMARY KEY,         -- name given by --name or taken from the directory
    path VARCHAR NOT NULL,
    layout VARCHAR NOT NULL             -- 'hf', 'trl', 'lora', …
);

CREATE TABLE series_checkpoints (
    series VARCHAR NOT NULL,
    checkpoint_id VARCHAR NOT NULL,
    step INTEGER NOT NULL,              -- optimizer step
    checkpoint VARCHAR NOT NULL,        -- label: the directory's name
    is_base BOOLEAN NOT NULL,
    path VARCHAR NOT NULL,              -- where it was read last
    PRIMARY KEY (series, step)
);

-- What the trainer itself logged (trainer_state.json, metrics.jsonl).
CREATE TABLE training_metrics (
    series VARCHAR NOT NULL,
    step INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    value DOUBLE NOT NULL CHECK (isfinite(value)),
    PRIMARY KEY (series, step, name)
);

CREATE TABLE problems (
    problem_id VARCHAR PRIMARY KEY,     -- content hash
    task VARCHAR NOT NULL,
    prompt VARCHAR NOT NULL,
    gold VARCHAR NOT NULL,
    verifier VARCHAR NOT NULL,
    source_id VARCHAR,                  -- the id the user's file gave it
    difficulty DOUBLE,
    meta JSON NOT NULL
);

-- Every accepted response of a problem, where they can be enumerated.
CREATE TABLE modes (
    problem_id VARCHAR NOT NULL,
    mode VARCHAR NOT NULL,              -- the response text
    response_id VARCHAR NOT NULL,
    PRIMARY KEY (problem_id, mode)
);

-- Sampling settings; their hash is part of every sample's identity.
CREATE TABLE settings (
    settings_id VARCHAR PRIMARY KEY,
    sampler VARCHAR NOT NULL,
    temperature DOUBLE NOT NULL,
    top_p DOUBLE NOT NULL,
    top_k INTEGER NOT NULL,
    max_tokens INTEGER NOT NULL,
    prompt_template VARCHAR NOT NULL,
    system_prompt VARCHAR NOT NULL,
    chat BOOLEAN NOT NULL,
    seed BIGINT NOT NULL,
    dtype VARCHAR NOT NULL
);

-- One row per sampled response. Uniqueness of (checkpoint_id, problem_id, settings_id, greedy, sample_index)
-- is kept by the single writer with an anti-join inside the inserting transaction: a primary key would
-- hold every row in a memory-resident index.
CREATE TABLE samples (
    checkpoint_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    settings_id VARCHAR NOT NULL,
    greedy BOOLEAN NOT NULL,
    sample_index INTEGER NOT NULL,      -- 0 … n−1; 0 for the greedy response
    response_id VARCHAR NOT NULL,       -- content hash of text
    text VARCHAR NOT NULL,
    token_ids INTEGER[],                -- response tokens incl. end; NULL if unknown: such samples are not scored
    n_tokens INTEGER NOT NULL,          -- response tokens incl. end
    finish_reason VARCHAR NOT NULL CHECK (finish_reason IN ('stop', 'length')),
    logp_sum_raw DOUBLE NOT NULL CHECK (NOT isnan(logp_sum_raw))  -- nats, temperature 1, no truncation
);

-- One row per distinct (problem, response text, verifier), shared by all checkpoints.
CREATE TABLE grades (
    problem_id VARCHAR NOT NULL,
    response_id VARCHAR NOT NULL,
    verifier VARCHAR NOT NULL,
    answer VARCHAR NOT NULL,            -- canonical final answer; 'NA' where none was found
    mode VARCHAR,                       -- canonical solution, the mode of Definition 2.1 [A]
    reward DOUBLE NOT NULL CHECK (isfinite(reward)),
    correct BOOLEAN NOT NULL,
    state VARCHAR NOT NULL CHECK (state IN ('ok', 'parse_fail', 'timeout', 'error')),
    reason VARCHAR NOT NULL,
    PRIMARY KEY (problem_id, response_id, verifier)
);

-- Teacher-forced scores at temperature 1 over the full vocabulary, in nats, summed over response tokens.
CREATE TABLE response_logps (
    checkpoint_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    settings_id VARCHAR NOT NULL,       -- the template the prompt was wrapped in
    response_id VARCHAR NOT NULL,
    logp_sum DOUBLE NOT NULL CHECK (NOT isnan(logp_sum)),
    entropy_sum DOUBLE NOT NULL CHECK (isfinite(entropy_sum)),
    n_tokens INTEGER NOT NULL,
    PRIMARY KEY (checkpoint_id, problem_id, settings_id, response_id)
);

-- One audit = one series under one problem set and one sampling setting.
CREATE TABLE audits (
    audit_id VARCHAR PRIMARY KEY,
    series VARCHAR NOT NULL,
    settings_id VARCHAR NOT NULL,
    n INTEGER NOT NULL,                 -- samples per problem and checkpoint
    entropy_samples INTEGER NOT NULL,   -- of those, teacher-forced for token entropy
    ks INTEGER[] NOT NULL,
    strategy_regex VARCHAR NOT NULL,    -- a response that matches is of the 'code' strategy
    updated_at TIMESTAMP NOT NULL,
    provenance JSON NOT NULL            -- command line and versions
);

CREATE TABLE audit_problems (
    audit_id VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    problem_id VARCHAR NOT NULL,
    PRIMARY KEY (audit_id, problem_id)
);

CREATE TABLE audit_findings (
    audit_id VARCHAR NOT NULL,
    checkpoint_id VARCHAR NOT NULL,
    measure VARCHAR NOT NULL,
    scope VARCHAR NOT NULL,             -- 'all' = the whole problem set; 'with_modes' = problems that list theirs
    k INTEGER,
    value DOUBLE CHECK (isfinite(value)),
    low DOUBLE CHECK (isfinite(low)),
    high DOUBLE CHECK (isfinite(high)),
    n INTEGER,                          -- units the value rests on
    unit VARCHAR NOT NULL,
    why VARCHAR,                        -- why value is NULL
    CHECK ((value IS NULL) <> (why IS NULL))
);

-- What ran, when, for how long.
CREATE TABLE events (
    logged_at TIMESTAMP NOT NULL DEFAULT current_timestamp,
    audit_id VARCHAR NOT NULL,
    stage VARCHAR NOT NULL,
    checkpoint_id VARCHAR,
    wall_s DOUBLE NOT NULL,
    rows_written BIGINT NOT NULL,
    note VARCHAR NOT NULL
);

-- ---------------------------------------------------------------- public views

-- The latest audit of every series: what the report shows.
CREATE VIEW current_audits AS
SELECT *
FROM audits
QUALIFY row_number() OVER (PARTITION BY series ORDER BY updated_at DESC, audit_id) = 1;

-- Graded samples of the current audits, one row per sample within the audit's n.
CREATE VIEW graded_samples AS
SELECT
    a.series,
    c.checkpoint,
    c.step,
    c.is_base,
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
    g.reason
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_problems AS ap USING (audit_id)
JOIN problems AS p USING (problem_id)
JOIN samples AS s
    ON s.checkpoint_id = c.checkpoint_id
    AND s.problem_id = ap.problem_id
    AND s.settings_id = a.settings_id
    AND s.sample_index < a.n
JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = p.verifier;

-- Samples and correct samples per problem and checkpoint (greedy excluded): the input of pass@k.
CREATE VIEW problem_counts AS
SELECT
    series,
    checkpoint,
    step,
    is_base,
    checkpoint_id,
    task,
    problem_id,
    count(*) AS n,
    count(*) FILTER (correct) AS n_correct
FROM graded_samples
WHERE NOT greedy
GROUP BY ALL;

-- How often each answer was given: the input of the answer entropy.
CREATE VIEW answer_counts AS
SELECT series, checkpoint, step, checkpoint_id, problem_id, answer, mode, correct, count(*) AS n
FROM graded_samples
WHERE NOT greedy
GROUP BY ALL;

-- Exact log-probability of every enumerated mode under every checkpoint.
CREATE VIEW mode_logps AS
SELECT
    a.series,
    c.checkpoint,
    c.step,
    c.is_base,
    c.checkpoint_id,
    m.problem_id,
    m.mode,
    r.logp_sum,
    r.n_tokens
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_problems AS ap USING (audit_id)
JOIN modes AS m USING (problem_id)
JOIN response_logps AS r
    ON r.checkpoint_id = c.checkpoint_id
    AND r.problem_id = m.problem_id
    AND r.settings_id = a.settings_id
    AND r.response_id = m.response_id;

-- Teacher-forced token entropy of the checkpoint's own samples, in nats.
CREATE VIEW sample_entropies AS
SELECT
    a.series,
    c.checkpoint,
    c.step,
    c.checkpoint_id,
    s.problem_id,
    s.sample_index,
    r.entropy_sum,
    r.n_tokens
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_problems AS ap USING (audit_id)
JOIN samples AS s
    ON s.checkpoint_id = c.checkpoint_id
    AND s.problem_id = ap.problem_id
    AND s.settings_id = a.settings_id
    AND NOT s.greedy
    AND s.sample_index < a.entropy_samples
JOIN response_logps AS r
    ON r.checkpoint_id = s.checkpoint_id
    AND r.problem_id = s.problem_id
    AND r.settings_id = s.settings_id
    AND r.response_id = s.response_id;

-- The findings of the current audits: long, tidy, what people query.
CREATE VIEW findings AS
SELECT
    c.checkpoint,
    c.step,
    f.measure,
    f.scope,
    f.k,
    f.value,
    f.low,
    f.high,
    f.n,
    f.unit,
    f.why,
    a.series
FROM current_audits AS a
JOIN audit_findings AS f USING (audit_id)
JOIN series_checkpoints AS c
    ON c.series = a.series
    AND c.checkpoint_id = f.checkpoint_id;
