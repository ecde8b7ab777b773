-- oversharp store, schema version 3: the gradient kernel of every checkpoint.

ALTER TABLE audits ADD COLUMN kernel_problems INTEGER;   -- problems whose responses are in the kernel; 0 = no kernel
ALTER TABLE audits ADD COLUMN kernel_responses INTEGER;  -- fixed responses, and own samples, per problem
UPDATE audits SET kernel_problems = 0, kernel_responses = 0;

ALTER TABLE training_responses ADD COLUMN draws INTEGER DEFAULT 1;  -- times drawn in its group

-- One kernel: one checkpoint and a list of responses, identified by both.
CREATE TABLE kernels (
    kernel_id VARCHAR PRIMARY KEY,
    certificate DOUBLE NOT NULL CHECK (isfinite(certificate))  -- relative residual of the random-sign test
);

-- Which kernel an audit has of a checkpoint, or why it has none.
CREATE TABLE audit_kernels (
    audit_id VARCHAR NOT NULL,
    checkpoint_id VARCHAR NOT NULL,
    kernel_id VARCHAR,
    why VARCHAR,
    PRIMARY KEY (audit_id, checkpoint_id),
    CHECK ((kernel_id IS NULL) <> (why IS NULL))
);

-- The rows of a kernel: distinct responses.
CREATE TABLE kernel_rows (
    kernel_id VARCHAR NOT NULL,
    position INTEGER NOT NULL,          -- row and column in the kernel, from 0
    problem_id VARCHAR NOT NULL,
    response_id VARCHAR NOT NULL,
    logp_sum DOUBLE NOT NULL CHECK (isfinite(logp_sum)),  -- nats, summed over n_tokens response tokens
    n_tokens INTEGER NOT NULL,
    PRIMARY KEY (kernel_id, position)
);

-- Why a response is in the kernel: it may play several roles, and be drawn several times in one.
CREATE TABLE kernel_roles (
    kernel_id VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    role VARCHAR NOT NULL CHECK (role IN ('mode', 'panel', 'own', 'batch')),
    sample_index INTEGER NOT NULL,      -- among the responses of its problem in this role, from 0
    correct BOOLEAN NOT NULL,
    PRIMARY KEY (kernel_id, position, role, sample_index)
);

-- K_ij = ⟨∇ log π(y_i|x_i), ∇ log π(y_j|x_j)⟩ over all trainable parameters, log π summed over response tokens.
CREATE TABLE kernel_values (
    kernel_id VARCHAR NOT NULL,
    row_position INTEGER NOT NULL,
    column_position INTEGER NOT NULL CHECK (column_position >= row_position),  -- the kernel is symmetric
    value DOUBLE NOT NULL CHECK (isfinite(value)),
    PRIMARY KEY (kernel_id, row_position, column_position)
);

-- ---------------------------------------------------------------- public views

CREATE OR REPLACE VIEW current_audits AS
SELECT *
FROM audits
QUALIFY row_number() OVER (PARTITION BY series ORDER BY updated_at DESC, audit_id) = 1;

-- One row per checkpoint whose kernel was asked for: its certificate, or why there is none.
CREATE VIEW kernel_runs AS
SELECT a.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, k.certificate, ak.why
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_kernels AS ak USING (audit_id, checkpoint_id)
LEFT JOIN kernels AS k USING (kernel_id);

-- The responses in the kernels, once per role. Roles:
-- panel  drawn by the base for every checkpoint to score; the same at every checkpoint
-- mode   enumerated correct responses; the same at every checkpoint
-- own    the checkpoint's own first samples, duplicates included; only where drawn at temperature 1, untruncated
-- batch  drawn by the trainer after this checkpoint, up to the next; problems of the training set
CREATE VIEW kernel_members AS
SELECT
    a.series,
    c.checkpoint,
    c.step,
    c.is_base,
    c.checkpoint_id,
    r.position,
    o.role,
    o.sample_index,
    coalesce(p.task, 'training') AS task,
    coalesce(p.meta ->> '$.group', p.task, 'training') AS related,  -- problems of one name are related
    r.problem_id,
    r.response_id,
    o.correct,
    r.logp_sum,
    r.n_tokens
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_kernels AS ak USING (audit_id, checkpoint_id)
JOIN kernel_rows AS r USING (kernel_id)
JOIN kernel_roles AS o USING (kernel_id, position)
LEFT JOIN problems AS p USING (problem_id);

-- The kernels' upper triangles, diagonal included.
CREATE VIEW kernel_pairs AS
SELECT a.series, c.checkpoint, c.step, c.checkpoint_id, v.row_position, v.column_position, v.value
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_kernels AS ak USING (audit_id, checkpoint_id)
JOIN kernel_values AS v USING (kernel_id);
