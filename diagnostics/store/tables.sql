-- The tables of an oversharp store, with the meaning and unit of every column. They hold facts and are written by
-- diagnostics/store alone; views.sql has what users and measures read.
-- Ids are hashes of content. NULL is unknown, never 0. Log-probabilities are natural logarithms, in nats.
-- If you change a table, raise SCHEMA_VERSION in database.py.

-- One row: the schema that this store is of.
CREATE TABLE schema_version (
    version INTEGER NOT NULL,           -- SCHEMA_VERSION of the oversharp that made the tables
    applied_at TIMESTAMP NOT NULL DEFAULT current_timestamp,  -- when they were made
    oversharp_version VARCHAR NOT NULL, -- of the distribution that made the tables
    views_hash VARCHAR NOT NULL         -- hash of the views.sql that the views in this file were made from
);

-- ---------------------------------------------------------------- what is audited

-- One weights file set, identified by the content of its tensors.
CREATE TABLE checkpoints (
    checkpoint_id VARCHAR PRIMARY KEY,  -- hash of the weights; of series and step where no weights were seen
    kind VARCHAR NOT NULL CHECK (kind IN ('full', 'lora', 'recorded'))  -- 'recorded': samples of another tool alone
);

CREATE TABLE series (
    series VARCHAR PRIMARY KEY,         -- name given by --name or taken from the directory
    path VARCHAR NOT NULL,              -- the run directory
    layout VARCHAR NOT NULL             -- 'hf', 'trl', 'lora', …
);

CREATE TABLE series_checkpoints (
    series VARCHAR NOT NULL,            -- name of the series
    checkpoint_id VARCHAR NOT NULL,     -- its weights
    step INTEGER NOT NULL,              -- optimizer step
    checkpoint VARCHAR NOT NULL,        -- label: the directory's name
    is_base BOOLEAN NOT NULL,           -- the one that the others are compared with
    path VARCHAR NOT NULL,
    PRIMARY KEY (series, step)
);
COMMENT ON TABLE series_checkpoints IS 'a checkpoint of a series';
COMMENT ON COLUMN series_checkpoints.path IS 'where it was read last';

-- What the trainer itself logged (trainer_state.json, metrics.jsonl).
CREATE TABLE training_metrics (
    series VARCHAR NOT NULL,            -- name of the series
    step INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    value DOUBLE NOT NULL CHECK (isfinite(value)),
    PRIMARY KEY (series, step, name)
);
COMMENT ON TABLE training_metrics IS 'a number that the trainer logged';
COMMENT ON COLUMN training_metrics.step IS 'optimizer step at which it was logged [steps]';
COMMENT ON COLUMN training_metrics.name IS 'the trainer''s name for it';
COMMENT ON COLUMN training_metrics.value IS 'the number [the trainer''s]';

-- Responses of the training batches, from the run directory, up to `step` and after the checkpoint before.
CREATE TABLE training_responses (
    series VARCHAR NOT NULL,            -- name of the series
    step INTEGER NOT NULL,
    problem_id VARCHAR NOT NULL,
    prompt VARCHAR NOT NULL,
    response_id VARCHAR NOT NULL,       -- content hash of text
    text VARCHAR NOT NULL,              -- the response
    truncated BOOLEAN NOT NULL,
    correct BOOLEAN NOT NULL,
    draws INTEGER NOT NULL,
    PRIMARY KEY (series, step, problem_id, response_id)
);
COMMENT ON TABLE training_responses IS 'a response of a training batch';
COMMENT ON COLUMN training_responses.step IS 'the checkpoint that it led to [steps]';
COMMENT ON COLUMN training_responses.problem_id IS 'hash of the training prompt';
COMMENT ON COLUMN training_responses.prompt IS 'the training prompt';
COMMENT ON COLUMN training_responses.truncated IS 'whether it was cut off';
COMMENT ON COLUMN training_responses.correct IS 'whether the trainer called it correct';
COMMENT ON COLUMN training_responses.draws IS 'times that it was drawn in its group [samples]';

CREATE TABLE problems (
    problem_id VARCHAR PRIMARY KEY,     -- content hash
    task VARCHAR NOT NULL,              -- problem set that it is from
    prompt VARCHAR NOT NULL,
    gold VARCHAR NOT NULL,
    verifier VARCHAR NOT NULL,
    source_id VARCHAR,
    difficulty DOUBLE,
    meta JSON NOT NULL
);
COMMENT ON TABLE problems IS 'a problem';
COMMENT ON COLUMN problems.prompt IS 'text of the problem, before any template; of an import, as the tool wrote it';
COMMENT ON COLUMN problems.gold IS 'the accepted answer';
COMMENT ON COLUMN problems.verifier IS 'who grades its responses';
COMMENT ON COLUMN problems.source_id IS 'the id that the user''s file gave it; NULL if none';
COMMENT ON COLUMN problems.difficulty IS 'as the problem file or task says; NULL if it does not [of the task]';
COMMENT ON COLUMN problems.meta IS 'further fields of the problem';

-- Every accepted response of a problem, where they can be enumerated.
CREATE TABLE modes (
    problem_id VARCHAR NOT NULL,        -- the problem
    mode VARCHAR NOT NULL,
    response_id VARCHAR NOT NULL,       -- content hash of mode
    PRIMARY KEY (problem_id, mode)
);
COMMENT ON TABLE modes IS 'an accepted response of a problem whose responses can be listed';
COMMENT ON COLUMN modes.mode IS 'text of the response';

-- Sampling settings; their hash is part of every sample's identity. NULL: another tool drew and did not tell.
CREATE TABLE settings (
    settings_id VARCHAR PRIMARY KEY,    -- hash of the others
    sampler VARCHAR NOT NULL,
    temperature DOUBLE,
    top_p DOUBLE,
    top_k INTEGER,
    max_tokens INTEGER,
    prompt_template VARCHAR,
    system_prompt VARCHAR,
    chat BOOLEAN,
    seed BIGINT,
    dtype VARCHAR,
    chat_args VARCHAR
);
COMMENT ON TABLE settings IS 'sampling settings; what another tool did not tell is NULL';
COMMENT ON COLUMN settings.sampler IS 'the engine, or the tool whose samples were imported';
COMMENT ON COLUMN settings.temperature IS 'sampling temperature [1]';
COMMENT ON COLUMN settings.top_p IS 'nucleus mass; 1 is all [probability]';
COMMENT ON COLUMN settings.top_k IS 'likeliest tokens kept; 0 is all [tokens]';
COMMENT ON COLUMN settings.max_tokens IS 'longest response [tokens]';
COMMENT ON COLUMN settings.prompt_template IS 'text around every prompt';
COMMENT ON COLUMN settings.system_prompt IS 'system turn';
COMMENT ON COLUMN settings.chat IS 'whether the tokenizer''s chat template was used';
COMMENT ON COLUMN settings.seed IS 'seed of all draws';
COMMENT ON COLUMN settings.dtype IS 'precision of the model';
COMMENT ON COLUMN settings.chat_args IS 'what else the chat template was given, a JSON object; NULL is nothing';

-- ---------------------------------------------------------------- what was sampled, graded and teacher-forced

-- One row per sampled response. Uniqueness of (checkpoint_id, problem_id, settings_id, greedy, sample_index) is kept by
-- the single writer with an anti-join inside the inserting transaction: a primary key would hold every row in a
-- memory-resident index. What other tools do not tell is NULL: tokens, log-probabilities, why a response ended.
CREATE TABLE samples (
    checkpoint_id VARCHAR NOT NULL,     -- who said it
    problem_id VARCHAR NOT NULL,        -- to which problem
    settings_id VARCHAR NOT NULL,       -- drawn how
    greedy BOOLEAN NOT NULL,            -- the greedy response; every other one was drawn
    sample_index INTEGER NOT NULL,      -- 0, 1, …; 0 for the greedy response
    response_id VARCHAR NOT NULL,       -- content hash of text
    text VARCHAR NOT NULL USING COMPRESSION zstd,  -- the response
    token_ids INTEGER[],                -- response tokens incl. end; without them it is not teacher-forced
    n_tokens INTEGER,                   -- response tokens incl. end
    finish_reason VARCHAR CHECK (finish_reason IN ('stop', 'length')),  -- ended by itself, or cut off
    logp_sum_raw DOUBLE CHECK (NOT isnan(logp_sum_raw)),  -- nats, by the sampler, temperature 1, no truncation
    entropy_sum DOUBLE CHECK (isfinite(entropy_sum))      -- nats, of the distributions drawn from
);

-- One row per (problem_id, response_id, verifier), shared by all checkpoints. The single writer keeps it so with an
-- anti-join: a primary key's index took most of the time that importing a dump takes.
CREATE TABLE grades (
    problem_id VARCHAR NOT NULL,        -- the problem
    response_id VARCHAR NOT NULL,       -- the response
    verifier VARCHAR NOT NULL,          -- who graded; 'recorded:TOOL': the reward that the tool gave
    answer VARCHAR NOT NULL,            -- canonical final answer; 'NA' where none was found
    mode VARCHAR,                       -- canonical solution, the mode of Definition 2.1 [A]
    reward DOUBLE NOT NULL CHECK (isfinite(reward)),  -- 1 is full
    correct BOOLEAN NOT NULL,           -- whether the reward is full
    state VARCHAR NOT NULL CHECK (state IN ('ok', 'parse_fail', 'ambiguous', 'timeout', 'error')),  -- what became of it
    reason VARCHAR NOT NULL,            -- why the state is not ok
    n_boxed INTEGER,                    -- different contents of \boxed{}; NULL where nobody looked at boxes
    rules INTEGER,                      -- which rules of that verifier; NULL for another tool or package
    answer_style VARCHAR CHECK (answer_style IN ('boxed', 'tagged', 'hashes', 'labelled', 'bare', 'prose', 'none')),
                                        -- how the answer is stated; NULL where the verifier reads no text
    lenient BOOLEAN                     -- correct, or accepted by the lenient reader; NULL where there is none
);

-- How a correct response solves its problem, one row per (problem_id, response_id), shared by all checkpoints: read from
-- its text alone, and joined with others like it. Made anew where a reader of another name or version reads.
CREATE TABLE response_ways (
    problem_id VARCHAR NOT NULL,        -- the problem
    response_id VARCHAR NOT NULL,       -- the response
    reader VARCHAR NOT NULL,
    strategy VARCHAR,
    operations VARCHAR,
    final_step VARCHAR,
    way VARCHAR,
    written VARCHAR,
    steps VARCHAR[],
    parts VARCHAR[],
    why VARCHAR,
    CHECK (steps IS NULL OR why IS NULL)
);
COMMENT ON TABLE response_ways IS 'a correct response whose way was read';
COMMENT ON COLUMN response_ways.reader IS 'who read it, and its version';
COMMENT ON COLUMN response_ways.strategy IS 'coarsest level: code, algebra, arithmetic, expression, or a reader''s own';
COMMENT ON COLUMN response_ways.operations IS 'how many values come out of each operation';
COMMENT ON COLUMN response_ways.final_step IS 'the last operation, with what goes in and out';
COMMENT ON COLUMN response_ways.way IS 'the way that it is one of: strategy and steps of its most frequent signature';
COMMENT ON COLUMN response_ways.written IS 'all of its steps, or the expression as it stands there';
COMMENT ON COLUMN response_ways.steps IS 'what it computes on its way';
COMMENT ON COLUMN response_ways.parts IS 'steps on the way to these, which others leave out';
COMMENT ON COLUMN response_ways.why IS 'why its way is not known; NULL if it is';

-- Teacher-forced at temperature 1 over the full vocabulary, summed over response tokens.
CREATE TABLE response_logps (
    checkpoint_id VARCHAR NOT NULL,     -- under whose law
    problem_id VARCHAR NOT NULL,        -- given which problem
    settings_id VARCHAR NOT NULL,       -- the template the prompt was wrapped in
    response_id VARCHAR NOT NULL,       -- the response
    logp_sum DOUBLE NOT NULL CHECK (NOT isnan(logp_sum)),         -- nats
    entropy_sum DOUBLE NOT NULL CHECK (isfinite(entropy_sum)),    -- nats, of the next-token distributions
    n_tokens INTEGER NOT NULL,          -- response tokens incl. end
    PRIMARY KEY (checkpoint_id, problem_id, settings_id, response_id)
);

-- The same response teacher-forced a second time under the same weights, in a batch of another shape.
CREATE TABLE second_logps (
    checkpoint_id VARCHAR NOT NULL,     -- the checkpoint
    problem_id VARCHAR NOT NULL,        -- the problem
    settings_id VARCHAR NOT NULL,       -- the template the prompt was wrapped in
    response_id VARCHAR NOT NULL,       -- hash of the response
    logp_sum DOUBLE NOT NULL CHECK (NOT isnan(logp_sum)),  -- nats
    PRIMARY KEY (checkpoint_id, problem_id, settings_id, response_id)
);

-- Parquet files beside the store, in the folder audit.tokens, one row per teacher-forced response:
-- checkpoint_id, problem_id, settings_id, response_id, token_logps FLOAT[], token_entropies FLOAT[] (nats).
CREATE TABLE token_files (
    file VARCHAR PRIMARY KEY,           -- name in that folder; it counts once its transaction is committed
    checksum VARCHAR NOT NULL           -- SHA-256 of its length and its end; another file of its name is left out
);

-- ---------------------------------------------------------------- audits

-- One audit = one series under one problem set and one sampling setting.
CREATE TABLE audits (
    audit_id VARCHAR PRIMARY KEY,       -- hash of what the audit compares
    series VARCHAR NOT NULL,            -- name of the series
    settings_id VARCHAR NOT NULL,       -- of its own samples
    n INTEGER NOT NULL,                 -- samples per problem and checkpoint
    n_base INTEGER NOT NULL,            -- samples per problem from the base
    entropy_samples INTEGER NOT NULL,   -- of those n, teacher-forced for token entropy
    ks INTEGER[] NOT NULL,              -- values of k for pass@k
    strategy_regex VARCHAR NOT NULL,    -- a response that matches is of the 'code' strategy
    updated_at TIMESTAMP NOT NULL,      -- when it was begun
    provenance JSON NOT NULL,           -- command line, versions, what was left out; '{}' until the audit has ended
    panel INTEGER NOT NULL,             -- responses per problem in the panel; 0 = no panel
    panel_settings_id VARCHAR,          -- sampling settings of the panel
    kernel_problems INTEGER NOT NULL,   -- problems whose responses are in the kernel; 0 = no kernel
    kernel_responses INTEGER NOT NULL,  -- fixed responses, and own samples, of each of them
    verifier VARCHAR,                   -- whose grades count; NULL: each problem's own verifier
    guess_rate DOUBLE CHECK (guess_rate BETWEEN 0 AND 1),  -- of wrong responses, accepted ones, as the user says
    looks INTEGER CHECK (looks >= 1),   -- how often the verdict will be read while training goes on; NULL = not known
    runs INTEGER NOT NULL CHECK (runs >= 1),  -- one of this many runs will be chosen
    selected_by VARCHAR CHECK (selected_by IN ('base', 'none'))  -- whether the base's samples chose the problems
);

CREATE TABLE audit_problems (
    audit_id VARCHAR NOT NULL,          -- the audit
    position INTEGER NOT NULL,
    problem_id VARCHAR NOT NULL,        -- the problem
    cluster VARCHAR,
    PRIMARY KEY (audit_id, problem_id)
);
COMMENT ON TABLE audit_problems IS 'a problem of an audit';
COMMENT ON COLUMN audit_problems.position IS 'place in the problem file, from 0';
COMMENT ON COLUMN audit_problems.cluster IS 'problems of one cluster are related; NULL if it stands for itself';

-- Samples planned per problem where an adaptive audit decided on them, or where an import has more than its n; without a
-- row: n, and n_base from the base.
CREATE TABLE allocations (
    audit_id VARCHAR NOT NULL,          -- the audit
    checkpoint_id VARCHAR NOT NULL,     -- the checkpoint
    problem_id VARCHAR NOT NULL,        -- the problem
    n INTEGER NOT NULL,                 -- samples planned; of an adaptive audit at most its n
    PRIMARY KEY (audit_id, checkpoint_id, problem_id)
);

-- What an audit draws besides, at other temperatures: the base sharper, a checkpoint hotter. Never pooled with its own.
CREATE TABLE audit_controls (
    audit_id VARCHAR NOT NULL,          -- the audit
    checkpoint_id VARCHAR NOT NULL,     -- who is drawn from
    settings_id VARCHAR NOT NULL,       -- drawn how: the audit's settings but for temperature and seed
    n INTEGER NOT NULL,                 -- samples per problem
    PRIMARY KEY (audit_id, checkpoint_id, settings_id)
);

CREATE TABLE audit_findings (
    audit_id VARCHAR NOT NULL,          -- the audit
    checkpoint_id VARCHAR NOT NULL,     -- the checkpoint
    measure VARCHAR NOT NULL,           -- name of the measure
    scope VARCHAR NOT NULL,             -- 'all' = the whole problem set; 'with_modes' = problems that list theirs
    k INTEGER,                          -- samples that pass@k and its kin allow; NULL elsewhere
    value DOUBLE CHECK (isfinite(value)),  -- in `unit`
    low DOUBLE CHECK (isfinite(low)),   -- lower end of the 95 % interval
    high DOUBLE CHECK (isfinite(high)), -- upper end
    n INTEGER,                          -- units the value rests on
    unit VARCHAR NOT NULL,              -- unit of value, low and high
    why VARCHAR,                        -- why value is NULL
    interval_over VARCHAR,              -- what the interval takes as independent: problems or clusters; NULL = none
    why_no_interval VARCHAR,            -- why related problems leave no interval
    CHECK ((value IS NULL) <> (why IS NULL)),
    CHECK (interval_over IN ('problems', 'clusters'))
);

-- What an audit concludes about its series; made with its findings.
CREATE TABLE audit_verdicts (
    audit_id VARCHAR PRIMARY KEY,       -- the audit
    label VARCHAR NOT NULL CHECK (label IN (  -- what the sentence begins with
        'over_sharpened', 'over_sharpened_here', 'mode_collapse', 'degraded', 'format', 'guessing', 'lost_at_steps',
        'no_loss', 'inconclusive', 'no_verdict'
    )),
    sentence VARCHAR NOT NULL,          -- the verdict in one sentence
    p_exact DOUBLE CHECK (isfinite(p_exact)),            -- these problems: pass@k fell at no k
    p_population DOUBLE CHECK (isfinite(p_population)),  -- problems like these: pass@k fell at no k
    p_minority DOUBLE CHECK (isfinite(p_minority)),      -- these problems: no correct minority mode was lost
    k_most INTEGER,                     -- the verdict holds for k = 1 … k_most
    document JSON NOT NULL              -- all of it: the fields of oversharp.diagnostics.verdict.record.Verdict
);

-- Looks at a series: its verdicts on different sets of checkpoints, or on more samples or problems at the same. What
-- was declared is that of the first.
CREATE TABLE verdict_looks (
    series VARCHAR NOT NULL,            -- name of the series
    look_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    steps INTEGER[] NOT NULL,
    declared INTEGER,
    runs INTEGER NOT NULL,
    PRIMARY KEY (series, look_id)
);
COMMENT ON TABLE verdict_looks IS 'a look at a series: a verdict on another set of checkpoints than the looks before';
COMMENT ON COLUMN verdict_looks.look_id IS 'hash of the checkpoints that are compared, their samples and problems';
COMMENT ON COLUMN verdict_looks.number IS '1, 2, … in the order in which they were taken';
COMMENT ON COLUMN verdict_looks.steps IS 'of the checkpoints that were compared with the base [steps]';
COMMENT ON COLUMN verdict_looks.declared IS 'looks that were declared before the first; NULL for any number';
COMMENT ON COLUMN verdict_looks.runs IS 'of so many runs one will be chosen, as was declared at this look';

-- Problems that seemed lost or gained, drawn afresh at the base and at a late checkpoint.
CREATE TABLE confirmations (
    audit_id VARCHAR NOT NULL,          -- the audit
    checkpoint_id VARCHAR NOT NULL,     -- the late checkpoint
    problem_id VARCHAR NOT NULL,        -- the problem
    change VARCHAR NOT NULL CHECK (change IN ('lost', 'gained')),  -- what it seemed
    settings_id VARCHAR NOT NULL,       -- of the fresh samples
    n_base INTEGER NOT NULL,            -- fresh samples of the base
    correct_base INTEGER NOT NULL,      -- of these, correct
    n_late INTEGER NOT NULL,            -- fresh samples of the late checkpoint
    correct_late INTEGER NOT NULL,      -- of these, correct
    p DOUBLE NOT NULL CHECK (isfinite(p)),                    -- Fisher's exact test, one-sided
    p_adjusted DOUBLE NOT NULL CHECK (isfinite(p_adjusted)),  -- Holm, over all problems that were drawn again
    PRIMARY KEY (audit_id, checkpoint_id, problem_id)
);

-- What ran, when, for how long.
CREATE TABLE events (
    logged_at TIMESTAMP NOT NULL DEFAULT current_timestamp,
    audit_id VARCHAR NOT NULL,          -- the audit
    stage VARCHAR NOT NULL,
    checkpoint_id VARCHAR,
    wall_s DOUBLE NOT NULL,
    rows_written BIGINT NOT NULL,
    note VARCHAR NOT NULL
);
COMMENT ON TABLE events IS 'a stage of an audit that ended';
COMMENT ON COLUMN events.logged_at IS 'when it ended';
COMMENT ON COLUMN events.stage IS 'sample, teacher-force, grade, kernel, measure, verdict, … or failed';
COMMENT ON COLUMN events.checkpoint_id IS 'hash of the checkpoint''s weights; NULL for a stage over all';
COMMENT ON COLUMN events.wall_s IS 'how long it took [seconds]';
COMMENT ON COLUMN events.rows_written IS 'rows that it wrote [rows]';
COMMENT ON COLUMN events.note IS 'what went wrong';

-- ---------------------------------------------------------------- gradient kernels

-- One kernel: one checkpoint and a list of responses, identified by both.
CREATE TABLE kernels (
    kernel_id VARCHAR PRIMARY KEY,      -- hash of the checkpoint and the responses
    certificate DOUBLE NOT NULL CHECK (isfinite(certificate))  -- relative residual of the random-sign test
);

-- Which kernel an audit has of a checkpoint, or why it has none.
CREATE TABLE audit_kernels (
    audit_id VARCHAR NOT NULL,          -- the audit
    checkpoint_id VARCHAR NOT NULL,     -- the checkpoint
    kernel_id VARCHAR,                  -- its kernel
    why VARCHAR,                        -- why there is none
    PRIMARY KEY (audit_id, checkpoint_id),
    CHECK ((kernel_id IS NULL) <> (why IS NULL))
);

-- The rows of a kernel: distinct responses.
CREATE TABLE kernel_rows (
    kernel_id VARCHAR NOT NULL,         -- the kernel
    position INTEGER NOT NULL,          -- row and column in the kernel, from 0
    problem_id VARCHAR NOT NULL,        -- the problem; of a batch response, content hash of its prompt
    response_id VARCHAR NOT NULL,       -- the response
    logp_sum DOUBLE NOT NULL CHECK (isfinite(logp_sum)),  -- nats, summed over n_tokens response tokens
    n_tokens INTEGER NOT NULL,          -- response tokens incl. end
    PRIMARY KEY (kernel_id, position)
);

-- Why a response is in the kernel: it may play several roles, and be drawn several times in one.
CREATE TABLE kernel_roles (
    kernel_id VARCHAR NOT NULL,         -- the kernel
    position INTEGER NOT NULL,          -- the response's row
    role VARCHAR NOT NULL CHECK (role IN ('mode', 'panel', 'own', 'batch')),  -- see the view kernel_members
    sample_index INTEGER NOT NULL,      -- among the responses of its problem in this role, from 0
    correct BOOLEAN NOT NULL,           -- whether the response is
    PRIMARY KEY (kernel_id, position, role, sample_index)
);

-- K_ij = ⟨∇ log π(y_i|x_i), ∇ log π(y_j|x_j)⟩ over all trainable parameters, log π summed over response tokens.
CREATE TABLE kernel_values (
    kernel_id VARCHAR NOT NULL,         -- the kernel
    row_position INTEGER NOT NULL,      -- i
    column_position INTEGER NOT NULL CHECK (column_position >= row_position),  -- j: the kernel is symmetric
    value DOUBLE NOT NULL CHECK (isfinite(value)),  -- K_ij
    PRIMARY KEY (kernel_id, row_position, column_position)
);

-- ---------------------------------------------------------------- samples of other tools

-- Files of other tools, by their content, and how far they were read.
CREATE TABLE imports (
    series VARCHAR NOT NULL,            -- the series that its samples went to
    file_hash VARCHAR NOT NULL,         -- hash of the content
    path VARCHAR NOT NULL,              -- where it was read last
    format VARCHAR NOT NULL,            -- which tool's
    verifier VARCHAR NOT NULL,          -- who grades its samples
    n_bytes BIGINT NOT NULL,            -- the file's size
    lines_done BIGINT NOT NULL,         -- lines, rows or archive members read
    n_samples BIGINT NOT NULL,          -- samples taken from it
    complete BOOLEAN NOT NULL,          -- read to its end
    PRIMARY KEY (series, file_hash)
);

-- Records that could not be used: how many of a file for which reason, and where the first is.
CREATE TABLE import_faults (
    series VARCHAR NOT NULL,            -- these two as in imports
    file_hash VARCHAR NOT NULL,         -- of the file, by its content
    why VARCHAR NOT NULL,               -- the reason
    n BIGINT NOT NULL,                  -- records
    first_line BIGINT NOT NULL,         -- line of the first, from 1
    PRIMARY KEY (series, file_hash, why)
);
