-- oversharp store, schema version 4: the verdict, and problems that were drawn again to confirm their loss.

-- What an audit concludes about its series; made with its findings.
CREATE TABLE audit_verdicts (
    audit_id VARCHAR PRIMARY KEY,
    label VARCHAR NOT NULL CHECK (label IN (
        'over_sharpened', 'over_sharpened_here', 'mode_collapse', 'no_loss', 'inconclusive', 'no_verdict'
    )),
    sentence VARCHAR NOT NULL,
    p_exact DOUBLE CHECK (isfinite(p_exact)),            -- these problems: pass@k fell at no k
    p_population DOUBLE CHECK (isfinite(p_population)),  -- problems like these: pass@k fell at no k
    p_minority DOUBLE CHECK (isfinite(p_minority)),      -- these problems: no correct minority mode was lost
    k_most INTEGER,                                      -- the verdict holds for k = 1 … k_most
    document JSON NOT NULL                               -- all of it: the fields of diagnostics.verdict.record.Verdict
);

-- Problems that seemed lost or gained, drawn afresh at the base and at a late checkpoint.
CREATE TABLE confirmations (
    audit_id VARCHAR NOT NULL,
    checkpoint_id VARCHAR NOT NULL,     -- the late checkpoint
    problem_id VARCHAR NOT NULL,
    change VARCHAR NOT NULL CHECK (change IN ('lost', 'gained')),
    settings_id VARCHAR NOT NULL,       -- of the fresh samples
    n_base INTEGER NOT NULL,            -- fresh samples of the base, and how many are correct
    correct_base INTEGER NOT NULL,
    n_late INTEGER NOT NULL,            -- fresh samples of the late checkpoint, and how many are correct
    correct_late INTEGER NOT NULL,
    p DOUBLE NOT NULL CHECK (isfinite(p)),                    -- Fisher's exact test, one-sided
    p_adjusted DOUBLE NOT NULL CHECK (isfinite(p_adjusted)),  -- Holm, over all problems that were drawn again
    PRIMARY KEY (audit_id, checkpoint_id, problem_id)
);

-- ---------------------------------------------------------------- public views

-- The verdict on every series.
CREATE VIEW verdicts AS
SELECT a.series, v.label, v.sentence, v.p_exact, v.p_population, v.p_minority, v.k_most, v.document
FROM current_audits AS a
JOIN audit_verdicts AS v USING (audit_id);

-- Problems drawn afresh, with the checkpoint they were tested at; confirmed where p_adjusted <= 0.05.
CREATE VIEW confirmed_problems AS
SELECT
    a.series, c.checkpoint, c.step, f.problem_id, f.change,
    f.n_base, f.correct_base, f.n_late, f.correct_late, f.p, f.p_adjusted, f.p_adjusted <= 0.05 AS confirmed
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN confirmations AS f USING (audit_id, checkpoint_id);
