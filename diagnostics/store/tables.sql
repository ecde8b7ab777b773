-- Tables of an oversharp store, with the meaning and unit of every column. Only diagnostics/store writes them. Users
-- and measures query the views in views.sql.
-- Ids are content hashes. An unknown value is NULL, never 0. Log-probabilities are natural logarithms, in nats. If you
-- change a table, raise SCHEMA_VERSION in schema.py.

-- One row.
CREATE TABLE schema_version (
    version INTEGER NOT NULL,           -- SCHEMA_VERSION of the oversharp that created the tables
    applied_at TIMESTAMP NOT NULL DEFAULT current_timestamp,  -- creation time
    oversharp_version VARCHAR NOT NULL, -- version of that oversharp
    views_hash VARCHAR NOT NULL         -- hash of the views.sql that created the views in this file
);

-- ---------------------------------------------------------------- checkpoints and problems

-- Weights, identified by the content of their tensors.
CREATE TABLE checkpoints (
    checkpoint_id VARCHAR PRIMARY KEY,  -- hash of the weights, with the step if an earlier step has
                                        -- equal weights; for an import, hash of series and step
    kind VARCHAR NOT NULL CHECK (kind IN ('full', 'lora', 'recorded'))  -- 'recorded': imported samples, no weights
);

CREATE TABLE series (
    series VARCHAR PRIMARY KEY,         -- from --name, or the name of the directory
    path VARCHAR NOT NULL,              -- the run directory
    layout VARCHAR NOT NULL             -- 'hf', 'trl', 'lora', …
);

CREATE TABLE series_checkpoints (
    series VARCHAR NOT NULL,            -- name of the series
    checkpoint_id VARCHAR NOT NULL,     -- hash of its weights
    step INTEGER NOT NULL,              -- optimizer step
    checkpoint VARCHAR NOT NULL,        -- label: name of its directory
    is_base BOOLEAN NOT NULL,           -- whether all other checkpoints are compared with it
    path VARCHAR NOT NULL,
    PRIMARY KEY (series, step)
);
COMMENT ON TABLE series_checkpoints IS 'a checkpoint of a series';
COMMENT ON COLUMN series_checkpoints.path IS 'its path when it was last read';

-- Metrics that the trainer logged (trainer_state.json, metrics.jsonl).
CREATE TABLE training_metrics (
    series VARCHAR NOT NULL,            -- name of the series
    step INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    value DOUBLE NOT NULL CHECK (isfinite(value)),
    PRIMARY KEY (series, step, name)
);
COMMENT ON TABLE training_metrics IS 'a value that the trainer logged';
COMMENT ON COLUMN training_metrics.step IS 'optimizer step at which it was logged [steps]';
COMMENT ON COLUMN training_metrics.name IS 'name of the metric in the trainer''s log';
COMMENT ON COLUMN training_metrics.value IS 'the logged value [as in the trainer''s log]';

-- Responses of the training batches between the previous checkpoint and the one at `step`, from the run directory.
CREATE TABLE training_responses (
    series VARCHAR NOT NULL,            -- name of the series
    step INTEGER NOT NULL,
    problem_id VARCHAR NOT NULL,
    prompt VARCHAR NOT NULL,
    response_id VARCHAR NOT NULL,       -- content hash of text, or of the trajectory
    text VARCHAR NOT NULL,              -- the response
    truncated BOOLEAN NOT NULL,
    correct BOOLEAN NOT NULL,
    draws INTEGER NOT NULL,
    PRIMARY KEY (series, step, problem_id, response_id)
);
COMMENT ON TABLE training_responses IS 'a response of a training batch';
COMMENT ON COLUMN training_responses.step IS 'step of the first checkpoint after the batch [steps]';
COMMENT ON COLUMN training_responses.problem_id IS 'hash of the training prompt';
COMMENT ON COLUMN training_responses.prompt IS 'the training prompt';
COMMENT ON COLUMN training_responses.truncated IS 'whether it was truncated at the token limit';
COMMENT ON COLUMN training_responses.correct IS 'whether the trainer graded it as correct';
COMMENT ON COLUMN training_responses.draws IS 'how often it was sampled in its group [samples]';

CREATE TABLE problems (
    problem_id VARCHAR PRIMARY KEY,     -- content hash
    task VARCHAR NOT NULL,              -- problem set
    prompt VARCHAR NOT NULL,
    gold VARCHAR NOT NULL,
    verifier VARCHAR NOT NULL,
    source_id VARCHAR,
    difficulty DOUBLE,
    meta JSON NOT NULL
);
COMMENT ON TABLE problems IS 'a problem';
COMMENT ON COLUMN problems.prompt IS 'text of the problem, without the template; for an import, as the tool wrote it';
COMMENT ON COLUMN problems.gold IS 'the accepted answer';
COMMENT ON COLUMN problems.verifier IS 'name of the verifier that grades its responses';
COMMENT ON COLUMN problems.source_id IS 'id of the problem in the user''s file; NULL without one';
COMMENT ON COLUMN problems.difficulty IS 'difficulty from the problem file or task; NULL without one [as in the task]';
COMMENT ON COLUMN problems.meta IS 'other fields of the problem, as JSON';

-- All accepted responses of a problem, if they can be enumerated.
CREATE TABLE modes (
    problem_id VARCHAR NOT NULL,        -- the problem
    mode VARCHAR NOT NULL,
    response_id VARCHAR NOT NULL,       -- content hash of mode
    PRIMARY KEY (problem_id, mode)
);
COMMENT ON TABLE modes IS 'an accepted response of a problem; only for problems whose accepted responses can be enumerated';
COMMENT ON COLUMN modes.mode IS 'text of the response';

-- Sampling settings; their hash is part of the identity of a sample. NULL: not recorded by the imported tool.
CREATE TABLE settings (
    settings_id VARCHAR PRIMARY KEY,    -- hash of the other columns
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
COMMENT ON TABLE settings IS 'sampling settings of samples; a setting that an imported tool did not record is NULL';
COMMENT ON COLUMN settings.sampler IS 'the inference engine, or the tool whose samples were imported';
COMMENT ON COLUMN settings.temperature IS 'sampling temperature [1]';
COMMENT ON COLUMN settings.top_p IS 'nucleus mass; 1 disables nucleus sampling [probability]';
COMMENT ON COLUMN settings.top_k IS 'number of most likely tokens that are kept; 0 keeps all [tokens]';
COMMENT ON COLUMN settings.max_tokens IS 'token limit of a response [tokens]';
COMMENT ON COLUMN settings.prompt_template IS 'template into which the prompt is inserted';
COMMENT ON COLUMN settings.system_prompt IS 'system prompt';
COMMENT ON COLUMN settings.chat IS 'whether the tokenizer''s chat template was used';
COMMENT ON COLUMN settings.seed IS 'random seed';
COMMENT ON COLUMN settings.dtype IS 'floating-point type of the model';
COMMENT ON COLUMN settings.chat_args IS 'additional arguments of the chat template, as a JSON object; NULL without any';

-- Further settings of samples that are trajectories of an audit.
CREATE TABLE IF NOT EXISTS agent_settings (
    settings_id VARCHAR PRIMARY KEY,
    environment VARCHAR NOT NULL,
    max_turns INTEGER NOT NULL
);
COMMENT ON TABLE agent_settings IS 'further sampling settings of the trajectories of an audit';
COMMENT ON COLUMN agent_settings.environment IS 'class whose tools the model calls: FILE.py:Class@hash of the file';
COMMENT ON COLUMN agent_settings.max_turns IS 'largest number of turns of the model';

-- ---------------------------------------------------------------- samples, grades and log-probabilities

-- One row per sampled response. (checkpoint_id, problem_id, settings_id, greedy, sample_index) is unique: the single
-- writer uses an anti-join inside the inserting transaction. The index of a primary key would keep every row in memory.
-- Tokens, log-probabilities and finish reason are NULL if an imported tool did not record them.
CREATE TABLE samples (
    checkpoint_id VARCHAR NOT NULL,     -- the sampled checkpoint
    problem_id VARCHAR NOT NULL,        -- the problem
    settings_id VARCHAR NOT NULL,       -- sampling settings
    greedy BOOLEAN NOT NULL,            -- whether it was decoded greedily, not sampled
    sample_index INTEGER NOT NULL,      -- 0, 1, …; 0 for the greedy response
    response_id VARCHAR NOT NULL,       -- content hash of text
    text VARCHAR NOT NULL USING COMPRESSION zstd,  -- the response
    token_ids INTEGER[],                -- tokens with the end token; NULL: cannot be teacher-forced
    n_tokens INTEGER,                   -- response tokens incl. end
    finish_reason VARCHAR CHECK (finish_reason IN ('stop', 'length')),  -- ended by an end token, or truncated
    logp_sum_raw DOUBLE CHECK (NOT isnan(logp_sum_raw)),  -- nats, from the sampler; temperature 1, no top-p/top-k
    entropy_sum DOUBLE CHECK (isfinite(entropy_sum))      -- nats, of the distributions sampled from
);

-- One row per response of several turns, or with tool calls. The text of such a sample has only what the model wrote.
-- The indices of turns and calls begin at 0.
CREATE TABLE IF NOT EXISTS trajectories (
    response_id VARCHAR NOT NULL,       -- content hash of turns
    turns STRUCT(
        role VARCHAR,                   -- assistant, tool, user or system
        text VARCHAR,
        reasoning VARCHAR,              -- NULL: none
        calls STRUCT(
            name VARCHAR,
            arguments VARCHAR,          -- JSON, or as the model wrote it
            id VARCHAR,
            is_valid BOOLEAN,           -- whether the arguments are a JSON object
            result INTEGER              -- index of the turn with its observation; NULL: none
        )[],
        name VARCHAR,                   -- tool of an observation
        call_id VARCHAR,                -- call that an observation answers
        is_error BOOLEAN,               -- whether the call failed; NULL: unknown
        n_tokens INTEGER,
        logp_sum DOUBLE,                -- nats
        is_trained BOOLEAN,             -- whether the turn has a loss; NULL: unknown
        extra VARCHAR                   -- other fields of the message, as a JSON object
    )[] NOT NULL
);
COMMENT ON TABLE trajectories IS 'a response of several turns, or with tool calls';
COMMENT ON COLUMN trajectories.turns IS 'turns after the prompt: text, reasoning and calls of the model, observations, words of users; NULL for one plain text';

-- One row per (problem_id, response_id, verifier), shared by all checkpoints. The single writer keeps these unique by
-- an anti-join. The index of a primary key took most of the time of an import.
CREATE TABLE grades (
    problem_id VARCHAR NOT NULL,        -- the problem
    response_id VARCHAR NOT NULL,       -- the response
    verifier VARCHAR NOT NULL,          -- name; 'recorded:TOOL': reward of an imported tool
    answer VARCHAR NOT NULL,            -- canonical final answer; 'NA' without one
    mode VARCHAR,                       -- canonical solution, the mode of Definition 2.1 [A]
    reward DOUBLE NOT NULL CHECK (isfinite(reward)),  -- 1 is full reward
    correct BOOLEAN NOT NULL,           -- whether the reward is that of a correct response: 1 unless the verifier has another threshold
    state VARCHAR NOT NULL CHECK (state IN ('ok', 'parse_fail', 'ambiguous', 'timeout', 'error')),  -- result of grading
    reason VARCHAR NOT NULL,            -- why the state is not ok
    n_boxed INTEGER,                    -- number of distinct \boxed{} contents; NULL if the verifier parses no boxes
    rules INTEGER,                      -- version of the verifier's rules; NULL for a tool or plugin
    answer_style VARCHAR CHECK (answer_style IN ('boxed', 'tagged', 'hashes', 'labelled', 'bare', 'prose', 'none')),
                                        -- how the answer is written; NULL if the verifier parses no text
    lenient BOOLEAN                     -- whether it is correct, or the lenient reader accepts it; NULL without one
);

-- How a correct response solves its problem: one row per (problem_id, response_id), shared by all checkpoints. The
-- steps are parsed from the text; similar responses are then merged to one way. Recomputed if the reader's name or
-- version changes.
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
COMMENT ON TABLE response_ways IS 'a correct response, with the way in which it solves its problem';
COMMENT ON COLUMN response_ways.reader IS 'name and version of the parser of ways';
COMMENT ON COLUMN response_ways.strategy IS 'coarsest level: code, algebra, arithmetic, expression, or a plugin''s name';
COMMENT ON COLUMN response_ways.operations IS 'operations of the computation, with the number of values that each computes';
COMMENT ON COLUMN response_ways.final_step IS 'the last operation, with its inputs and result';
COMMENT ON COLUMN response_ways.way IS 'name of its way: strategy and steps of the most frequent signature';
COMMENT ON COLUMN response_ways.written IS 'all steps of the response, or its expression as written';
COMMENT ON COLUMN response_ways.steps IS 'required steps of the computation, by which similar responses are merged';
COMMENT ON COLUMN response_ways.parts IS 'optional steps, which other responses may leave out';
COMMENT ON COLUMN response_ways.why IS 'why its way is unknown; NULL if it is known';

-- Teacher-forced log-probabilities at temperature 1 over the full vocabulary, summed over response tokens.
CREATE TABLE response_logps (
    checkpoint_id VARCHAR NOT NULL,     -- the scoring checkpoint
    problem_id VARCHAR NOT NULL,        -- the problem
    settings_id VARCHAR NOT NULL,       -- settings with the prompt's template
    response_id VARCHAR NOT NULL,       -- the response
    logp_sum DOUBLE NOT NULL CHECK (NOT isnan(logp_sum)),         -- nats
    entropy_sum DOUBLE CHECK (isfinite(entropy_sum)),  -- nats, of the next-token distributions; NULL: scored by a server
    n_tokens INTEGER NOT NULL,          -- response tokens incl. end
    PRIMARY KEY (checkpoint_id, problem_id, settings_id, response_id)
);

-- Second teacher-forced log-probability of a response under the same weights, in a batch of another shape.
CREATE TABLE second_logps (
    checkpoint_id VARCHAR NOT NULL,     -- the checkpoint
    problem_id VARCHAR NOT NULL,        -- the problem
    settings_id VARCHAR NOT NULL,       -- settings with the prompt's template
    response_id VARCHAR NOT NULL,       -- hash of the response
    logp_sum DOUBLE NOT NULL CHECK (NOT isnan(logp_sum)),  -- nats
    PRIMARY KEY (checkpoint_id, problem_id, settings_id, response_id)
);

-- Parquet files next to the store, in the folder audit.tokens, one row per teacher-forced response:
-- checkpoint_id, problem_id, settings_id, response_id, token_logps FLOAT[], token_entropies FLOAT[] (nats; NULL: scored by
-- a server).
CREATE TABLE token_files (
    file VARCHAR PRIMARY KEY,           -- file name in that folder; ignored until its transaction is committed
    checksum VARCHAR NOT NULL           -- SHA-256 of length and last bytes; a file that differs is ignored
);

-- ---------------------------------------------------------------- audits

-- An audit has one series, one problem set and one set of sampling settings.
CREATE TABLE audits (
    audit_id VARCHAR PRIMARY KEY,       -- hash of series, problems, settings and sample counts
    series VARCHAR NOT NULL,            -- name of the series
    settings_id VARCHAR NOT NULL,       -- sampling settings of its samples
    n INTEGER NOT NULL,                 -- samples per problem and checkpoint; at most, if `enough` is given
    n_base INTEGER NOT NULL,            -- samples per problem from the base; at most, if `enough` is given
    first_round INTEGER CHECK (first_round >= 1),  -- samples of the first round; NULL with `enough`
    enough INTEGER CHECK (enough >= 1), -- correct samples after which a problem is not sampled further; NULL: always n
    entropy_samples INTEGER NOT NULL,   -- how many of the n samples are used for token entropy
    ks INTEGER[] NOT NULL,              -- values of k for pass@k
    strategy_regex VARCHAR NOT NULL,    -- regular expression; a matching response has the strategy 'code'
    updated_at TIMESTAMP NOT NULL,      -- start of the audit
    provenance JSON NOT NULL,           -- command line, versions, left-out checkpoints; '{}' until the audit ends
    panel INTEGER NOT NULL,             -- responses per problem in the panel; 0 = no panel
    panel_settings_id VARCHAR,          -- sampling settings of the panel
    kernel_problems INTEGER NOT NULL,   -- problems whose responses are in the kernel; 0 = no kernel
    kernel_responses INTEGER NOT NULL,  -- number of fixed responses, and also of own samples, per problem
    verifier VARCHAR,                   -- verifier whose grades are used; NULL: each problem's own
    guess_rate DOUBLE CHECK (guess_rate BETWEEN 0 AND 1),  -- false-accept rate given by the user
    looks INTEGER CHECK (looks >= 1),   -- planned looks at the verdict during training; NULL: unknown
    runs INTEGER NOT NULL CHECK (runs >= 1),  -- number of runs of which one will be chosen
    selected_by VARCHAR CHECK (selected_by IN ('base', 'none')),  -- 'base': its samples selected the problems
    CHECK ((first_round IS NULL) = (enough IS NULL))
);

CREATE TABLE audit_problems (
    audit_id VARCHAR NOT NULL,          -- the audit
    position INTEGER NOT NULL,
    problem_id VARCHAR NOT NULL,        -- the problem
    cluster VARCHAR,
    PRIMARY KEY (audit_id, problem_id)
);
COMMENT ON TABLE audit_problems IS 'a problem of an audit';
COMMENT ON COLUMN audit_problems.position IS 'position in the problem file, from 0';
COMMENT ON COLUMN audit_problems.cluster IS 'cluster of related problems; NULL for an independent problem';

-- Planned number of samples of a problem: up to the round at which it stops or that is drawn next, by the current
-- grades; or all samples of an import with more than n. Without a row it is the first round, or without `enough` n, or
-- n_base for the base.
CREATE TABLE stops (
    audit_id VARCHAR NOT NULL,          -- the audit
    checkpoint_id VARCHAR NOT NULL,     -- the checkpoint
    settings_id VARCHAR NOT NULL,       -- sampling settings: the audit's own, or those of a control
    problem_id VARCHAR NOT NULL,        -- the problem
    n INTEGER NOT NULL,                 -- planned number of samples
    PRIMARY KEY (audit_id, checkpoint_id, settings_id, problem_id)
);

-- Controls: samples at other temperatures, lower for the base or higher for a checkpoint. They are never pooled with
-- other samples.
CREATE TABLE audit_controls (
    audit_id VARCHAR NOT NULL,          -- the audit
    checkpoint_id VARCHAR NOT NULL,     -- the sampled checkpoint
    settings_id VARCHAR NOT NULL,       -- the audit's settings except temperature and seed
    n INTEGER NOT NULL,                 -- samples per problem; at most, if the audit has a stopping rule
    PRIMARY KEY (audit_id, checkpoint_id, settings_id)
);

CREATE TABLE audit_findings (
    audit_id VARCHAR NOT NULL,          -- the audit
    checkpoint_id VARCHAR NOT NULL,     -- the checkpoint
    measure VARCHAR NOT NULL,           -- name of the measure
    scope VARCHAR NOT NULL,             -- 'all': the whole problem set; 'with_modes': problems with enumerated modes
    k INTEGER,                          -- k of pass@k and similar measures; NULL for others
    value DOUBLE CHECK (isfinite(value)),  -- in `unit`
    low DOUBLE CHECK (isfinite(low)),   -- lower end of the 95 % interval
    high DOUBLE CHECK (isfinite(high)), -- upper end
    n INTEGER,                          -- number of units that the value uses
    unit VARCHAR NOT NULL,              -- unit of value, low and high
    why VARCHAR,                        -- why value is NULL
    interval_over VARCHAR,              -- resampling unit of the interval; NULL without one
    why_no_interval VARCHAR,            -- why there is no interval because problems are related
    CHECK ((value IS NULL) <> (why IS NULL)),
    CHECK (interval_over IN ('problems', 'clusters'))
);

-- The verdict of an audit, computed together with its findings.
CREATE TABLE audit_verdicts (
    audit_id VARCHAR PRIMARY KEY,       -- the audit
    label VARCHAR NOT NULL CHECK (label IN (  -- label of the verdict
        'over_sharpened', 'over_sharpened_here', 'mode_collapse', 'degraded', 'format', 'guessing', 'lost_at_steps',
        'no_loss', 'inconclusive', 'no_verdict'
    )),
    sentence VARCHAR NOT NULL,          -- the verdict in one sentence
    p_exact DOUBLE CHECK (isfinite(p_exact)),            -- null: pass@k fell at no k, on these problems
    p_population DOUBLE CHECK (isfinite(p_population)),  -- null: the same, on the population of these problems
    p_minority DOUBLE CHECK (isfinite(p_minority)),      -- null: no correct minority mode was lost, on these problems
    k_most INTEGER,                     -- largest k of the verdict, which starts at k = 1
    document JSON NOT NULL              -- the whole verdict: fields of oversharp.diagnostics.verdict.record.Verdict
);

-- Looks at a series: verdicts on different sets of checkpoints, or on more samples or problems of the same checkpoints.
-- The declaration of the first look applies to all looks.
CREATE TABLE verdict_looks (
    series VARCHAR NOT NULL,            -- name of the series
    look_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    steps INTEGER[] NOT NULL,
    declared INTEGER,
    runs INTEGER NOT NULL,
    PRIMARY KEY (series, look_id)
);
COMMENT ON TABLE verdict_looks IS 'a look at a series: a verdict on a set of checkpoints, samples and problems that no earlier look had';
COMMENT ON COLUMN verdict_looks.look_id IS 'hash of the compared checkpoints, their samples and problems';
COMMENT ON COLUMN verdict_looks.number IS 'number of the look in order of time, from 1';
COMMENT ON COLUMN verdict_looks.steps IS 'steps of the checkpoints that were compared with the base [steps]';
COMMENT ON COLUMN verdict_looks.declared IS 'number of looks that was planned before the first one; NULL for any number';
COMMENT ON COLUMN verdict_looks.runs IS 'number of runs of which the user will choose one, as given at this look';

-- Seemingly lost or gained problems, sampled again at the base and at a late checkpoint.
CREATE TABLE confirmations (
    audit_id VARCHAR NOT NULL,          -- the audit
    checkpoint_id VARCHAR NOT NULL,     -- the late checkpoint
    problem_id VARCHAR NOT NULL,        -- the problem
    change VARCHAR NOT NULL CHECK (change IN ('lost', 'gained')),  -- by the audit's samples
    settings_id VARCHAR NOT NULL,       -- sampling settings of the new samples
    n_base INTEGER NOT NULL,            -- number of new samples of the base
    correct_base INTEGER NOT NULL,      -- number of correct ones among n_base
    n_late INTEGER NOT NULL,            -- number of new samples of the late checkpoint
    correct_late INTEGER NOT NULL,      -- number of correct ones among n_late
    p DOUBLE NOT NULL CHECK (isfinite(p)),                    -- Fisher's exact test, one-sided
    p_adjusted DOUBLE NOT NULL CHECK (isfinite(p_adjusted)),  -- p with Holm's correction for all problems
    PRIMARY KEY (audit_id, checkpoint_id, problem_id)
);

-- Log of stages.
CREATE TABLE events (
    logged_at TIMESTAMP NOT NULL DEFAULT current_timestamp,
    audit_id VARCHAR NOT NULL,          -- the audit
    stage VARCHAR NOT NULL,
    checkpoint_id VARCHAR,
    wall_s DOUBLE NOT NULL,
    rows_written BIGINT NOT NULL,
    note VARCHAR NOT NULL
);
COMMENT ON TABLE events IS 'a finished stage of an audit';
COMMENT ON COLUMN events.logged_at IS 'when it ended';
COMMENT ON COLUMN events.stage IS 'sample, teacher-force, grade, judge, kernel, measure, verdict, … or failed';
COMMENT ON COLUMN events.checkpoint_id IS 'hash of the checkpoint''s weights; NULL for a stage over all checkpoints';
COMMENT ON COLUMN events.wall_s IS 'duration [seconds]';
COMMENT ON COLUMN events.rows_written IS 'rows written [rows]';
COMMENT ON COLUMN events.note IS 'error message of a failed stage; JSON for the stages judge, endpoint answers and endpoint usage';

-- ---------------------------------------------------------------- gradient kernels

-- A kernel is identified by its checkpoint and its list of responses.
CREATE TABLE kernels (
    kernel_id VARCHAR PRIMARY KEY,      -- hash of the checkpoint and the responses
    certificate DOUBLE NOT NULL CHECK (isfinite(certificate))  -- relative residual of the random-sign test
);

-- Kernel of a checkpoint in an audit, or why it is missing.
CREATE TABLE audit_kernels (
    audit_id VARCHAR NOT NULL,          -- the audit
    checkpoint_id VARCHAR NOT NULL,     -- the checkpoint
    kernel_id VARCHAR,                  -- its kernel
    why VARCHAR,                        -- why there is none
    PRIMARY KEY (audit_id, checkpoint_id),
    CHECK ((kernel_id IS NULL) <> (why IS NULL))
);

-- Rows of a kernel, one per distinct response.
CREATE TABLE kernel_rows (
    kernel_id VARCHAR NOT NULL,         -- the kernel
    position INTEGER NOT NULL,          -- row and column in the kernel, from 0
    problem_id VARCHAR NOT NULL,        -- the problem; for a batch response, hash of its prompt
    response_id VARCHAR NOT NULL,       -- the response
    logp_sum DOUBLE NOT NULL CHECK (isfinite(logp_sum)),  -- nats, summed over n_tokens response tokens
    n_tokens INTEGER NOT NULL,          -- response tokens incl. end
    PRIMARY KEY (kernel_id, position)
);

-- Roles of a response in the kernel. A response may have several roles, and several samples in one role.
CREATE TABLE kernel_roles (
    kernel_id VARCHAR NOT NULL,         -- the kernel
    position INTEGER NOT NULL,          -- row of the response
    role VARCHAR NOT NULL CHECK (role IN ('mode', 'panel', 'own', 'batch')),  -- as in the view kernel_members
    sample_index INTEGER NOT NULL,      -- index among the responses of its problem in this role, from 0
    correct BOOLEAN NOT NULL,           -- whether the response is correct
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

-- ---------------------------------------------------------------- imports

-- Imported files of other tools, by content, with the progress of the import.
CREATE TABLE imports (
    series VARCHAR NOT NULL,            -- series of its samples
    file_hash VARCHAR NOT NULL,         -- hash of the content
    path VARCHAR NOT NULL,              -- path when it was last read
    format VARCHAR NOT NULL,            -- name of the importer
    verifier VARCHAR NOT NULL,          -- verifier of its samples
    n_bytes BIGINT NOT NULL,            -- the file's size
    lines_done BIGINT NOT NULL,         -- number of lines, rows or archive members read
    n_samples BIGINT NOT NULL,          -- number of samples imported from it
    complete BOOLEAN NOT NULL,          -- whether it was read to its end
    PRIMARY KEY (series, file_hash)
);

-- Unusable records of a file: their number for each reason, and the line of the first one.
CREATE TABLE import_faults (
    series VARCHAR NOT NULL,            -- series of the file, as in imports
    file_hash VARCHAR NOT NULL,         -- hash of the content
    why VARCHAR NOT NULL,               -- the reason
    n BIGINT NOT NULL,                  -- number of records
    first_line BIGINT NOT NULL,         -- line of the first record, from 1
    PRIMARY KEY (series, file_hash, why)
);
