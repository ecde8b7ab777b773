-- The public views: what users, measures and the report read; diagnostics/store/views.py says what every column means.
-- All but those at the end are kept in the store and made anew when this file has changed.

-- ---------------------------------------------------------------- what is read of a text

-- Whether it ends in one passage of at most 200 characters, three times or more, and for 60 characters at least.
CREATE OR REPLACE MACRO ends_in_a_loop(text) AS list_transform(
    -- the period, if there is one: where the last 20 characters stood before
    [(reverse(right(text, 600)), instr(substr(reverse(right(text, 600)), 2), left(reverse(right(text, 600)), 20)))],
    lambda t: t[2] BETWEEN 1 AND 200
        AND length(t[1]) >= greatest(60, 3 * t[2])
        AND left(t[1], greatest(60, 3 * t[2]) - t[2]) = substr(t[1], t[2] + 1, greatest(60, 3 * t[2]) - t[2])
)[1];

-- Whether it takes something back, in English words.
CREATE OR REPLACE MACRO takes_something_back(text) AS regexp_matches(
    text,
    '(?i)\b(wait|hold on)\b[ ,.!-]|\blet me (re-?check|double[- ]check|re-?consider|re-?think|re-?calculate|try again)\b'
        || '|\bi (made|see) (a|an|my) (mistake|error)\b|\b(that|this)(''s| is) (wrong|incorrect|not right|not correct)\b'
        || '|\bactually, '
);

-- Why a sample that is not correct says nothing of what the model can do: 'cut' off by the token limit before a readable
-- answer stood in a box, or 'unread' otherwise. NULL of any other: what goes on behind a boxed answer may be cut off.
CREATE OR REPLACE MACRO why_unread(correct, finish_reason, state, n_boxed) AS CASE
    WHEN correct OR (state IS NOT DISTINCT FROM 'ok' AND coalesce(n_boxed, 0) > 0) THEN NULL
    WHEN finish_reason = 'length' THEN 'cut'
    WHEN state <> 'ok' THEN 'unread'
END;

-- ---------------------------------------------------------------- what the audits want

-- The latest audit of every series: what the report shows.
CREATE OR REPLACE VIEW current_audits AS
SELECT *
FROM audits
QUALIFY row_number() OVER (PARTITION BY series ORDER BY updated_at DESC, audit_id) = 1;

-- How many samples each problem of the current audits has at each checkpoint, and how many it has at every one.
CREATE OR REPLACE VIEW planned_samples AS
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
        CASE WHEN c.is_base THEN greatest(a.n_base, al.n) ELSE coalesce(al.n, a.n) END AS n_planned
    FROM current_audits AS a
    JOIN series_checkpoints AS c USING (series)
    JOIN audit_problems AS ap USING (audit_id)
    LEFT JOIN allocations AS al USING (audit_id, checkpoint_id, problem_id)
)
SELECT
    *,
    min(n_planned) OVER (PARTITION BY audit_id, problem_id) AS n_common
FROM planned;

-- The samples that the current audits drew from every checkpoint, the first n_planned, with their grades, if they have
-- them. A view of their own: DuckDB would plan the other roles too for whoever asks for these, and planning takes
-- longer than the answer.
-- samples and grades are joined in one SELECT each: across a subquery DuckDB does not reorder joins
CREATE OR REPLACE VIEW own_samples AS
SELECT
    w.audit_id, w.series, w.checkpoint, w.step, w.is_base, w.checkpoint_id, p.task, w.problem_id,
    'own' AS role, s.* EXCLUDE (checkpoint_id, problem_id), g.* EXCLUDE (problem_id, response_id, verifier),
    coalesce(a.verifier, p.verifier) AS verifier, p.verifier AS own_verifier,
    w.n_planned, w.n_common, a.panel, a.entropy_samples, a.strategy_regex
FROM planned_samples AS w
JOIN audits AS a USING (audit_id)
JOIN problems AS p USING (problem_id)
JOIN samples AS s
    ON s.checkpoint_id = w.checkpoint_id
    AND s.problem_id = w.problem_id
    AND s.settings_id = w.settings_id
    AND s.sample_index < w.n_planned
LEFT JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = coalesce(a.verifier, p.verifier);

-- All samples that the current audits rest on, graded or not, one row per sample and role:
-- own      own_samples
-- panel    drawn once from the base, under settings of its own, for every checkpoint to teacher-force
-- control  drawn at another temperature: the base sharper, a checkpoint hotter
CREATE OR REPLACE VIEW audit_samples AS
WITH panel AS (
    SELECT
        a.audit_id, a.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, p.task, ap.problem_id,
        'panel' AS role, s.* EXCLUDE (checkpoint_id, problem_id), g.* EXCLUDE (problem_id, response_id, verifier),
        coalesce(a.verifier, p.verifier) AS verifier, p.verifier AS own_verifier,
        a.panel AS n_planned, a.panel AS n_common, a.panel, a.entropy_samples, a.strategy_regex
    FROM current_audits AS a
    JOIN series_checkpoints AS c
        ON c.series = a.series
        AND c.is_base
    JOIN audit_problems AS ap USING (audit_id)
    JOIN problems AS p USING (problem_id)
    JOIN samples AS s
        ON s.checkpoint_id = c.checkpoint_id
        AND s.problem_id = ap.problem_id
        AND s.settings_id = a.panel_settings_id
        AND NOT s.greedy
        AND s.sample_index < a.panel
    LEFT JOIN grades AS g
        ON g.problem_id = s.problem_id
        AND g.response_id = s.response_id
        AND g.verifier = coalesce(a.verifier, p.verifier)
),
control AS (
    SELECT
        a.audit_id, a.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, p.task, ap.problem_id,
        'control' AS role, s.* EXCLUDE (checkpoint_id, problem_id), g.* EXCLUDE (problem_id, response_id, verifier),
        coalesce(a.verifier, p.verifier) AS verifier, p.verifier AS own_verifier,
        o.n AS n_planned, o.n AS n_common, a.panel, a.entropy_samples, a.strategy_regex
    FROM current_audits AS a
    JOIN audit_controls AS o USING (audit_id)
    JOIN series_checkpoints AS c
        ON c.series = a.series
        AND c.checkpoint_id = o.checkpoint_id
    JOIN audit_problems AS ap USING (audit_id)
    JOIN problems AS p USING (problem_id)
    JOIN samples AS s
        ON s.checkpoint_id = o.checkpoint_id
        AND s.problem_id = ap.problem_id
        AND s.settings_id = o.settings_id
        AND NOT s.greedy
        AND s.sample_index < o.n
    LEFT JOIN grades AS g
        ON g.problem_id = s.problem_id
        AND g.response_id = s.response_id
        AND g.verifier = coalesce(a.verifier, p.verifier)
)
FROM own_samples UNION ALL FROM panel UNION ALL FROM control;

-- ---------------------------------------------------------------- graded samples

-- Graded samples of the current audits, one row per sample.
CREATE OR REPLACE VIEW graded_samples AS
SELECT
    s.series,
    s.checkpoint,
    s.step,
    s.is_base,
    s.checkpoint_id,
    s.task,
    s.problem_id,
    s.greedy,
    s.sample_index,
    s.response_id,
    s.text,
    s.n_tokens,
    s.finish_reason,
    s.logp_sum_raw,
    s.answer,
    s.mode,
    s.reward,
    s.correct,
    CASE WHEN s.verifier NOT LIKE 'recorded:%' THEN s.state END AS state,  -- another tool does not tell
    s.reason,
    s.n_boxed,
    s.answer_style,
    s.lenient,
    CASE WHEN regexp_matches(s.text, s.strategy_regex) THEN 'code' ELSE 'prose' END AS strategy,
    CASE WHEN s.finish_reason = 'length' THEN ends_in_a_loop(s.text) ELSE s.finish_reason <> 'stop' END AS looped,
    CASE WHEN s.sample_index < 32 THEN takes_something_back(s.text) END AS reconsiders,  -- of all it would take long
    s.sample_index < s.n_common AS common,  -- one of the first n_common: as many at every checkpoint
    s.n_planned,
    s.n_common
FROM own_samples AS s
WHERE s.correct IS NOT NULL;

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
CREATE OR REPLACE VIEW sampled_counts AS
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

-- The same, with what became of the samples that are not correct: so many were cut off before they had answered, and of
-- the others so many gave no answer that could be read. NULL where a sample does not tell.
CREATE OR REPLACE VIEW read_counts AS
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
    CASE WHEN count(finish_reason) = count(*)
        THEN count(*) FILTER (why_unread(correct, finish_reason, state, n_boxed) = 'cut') END AS n_cut,
    CASE WHEN count(state) = count(*)
        THEN count(*) FILTER (why_unread(correct, finish_reason, state, n_boxed) = 'unread') END AS n_unread,
    n_planned
FROM graded_samples
WHERE NOT greedy
GROUP BY ALL;

-- Samples and correct samples per problem of what was drawn at other temperatures: the base sharper, a checkpoint hotter.
CREATE OR REPLACE VIEW control_counts AS
SELECT
    s.series,
    s.checkpoint,
    s.step,
    s.is_base,
    s.checkpoint_id,
    t.temperature,
    own.temperature AS own_temperature,
    s.task,
    s.problem_id,
    count(*) AS n,
    count(*) FILTER (s.correct) AS n_correct,
    count(*) FILTER (why_unread(s.correct, s.finish_reason, s.state, s.n_boxed) = 'cut') AS n_cut,
    count(*) FILTER (why_unread(s.correct, s.finish_reason, s.state, s.n_boxed) = 'unread') AS n_unread,
    s.n_planned
FROM audit_samples AS s
JOIN settings AS t USING (settings_id)
JOIN current_audits AS a USING (audit_id)
JOIN settings AS own ON own.settings_id = a.settings_id
WHERE s.role = 'control' AND s.correct IS NOT NULL
GROUP BY ALL;

-- The series that hold what `oversharp regrade` says of the samples of another: of several verifiers the one asked last.
CREATE OR REPLACE VIEW second_gradings AS
SELECT a.series, b.series AS second_series, b.verifier
FROM current_audits AS a
JOIN current_audits AS b
    ON b.settings_id = a.settings_id
    AND b.series = a.series || ' (' || b.verifier || ')'
WHERE a.verifier IS NULL
QUALIFY row_number() OVER (PARTITION BY a.series ORDER BY b.updated_at DESC, b.audit_id) = 1;

-- What the second verifier says, problem by problem: of own samples, and with their temperature of what was drawn at
-- others.
CREATE OR REPLACE VIEW second_counts AS
SELECT
    r.series,
    s.checkpoint,
    s.step,
    s.is_base,
    s.checkpoint_id,
    CASE WHEN s.role = 'control' THEN t.temperature END AS temperature,  -- NULL: the audit's own
    s.task,
    s.problem_id,
    s.verifier,
    count(*) AS n,
    count(*) FILTER (s.correct) AS n_correct,
    count(*) FILTER (why_unread(s.correct, s.finish_reason, s.state, s.n_boxed) = 'cut') AS n_cut,
    count(*) FILTER (why_unread(s.correct, s.finish_reason, s.state, s.n_boxed) = 'unread') AS n_unread,
    s.n_planned
FROM second_gradings AS r
JOIN audit_samples AS s ON s.series = r.second_series
JOIN settings AS t USING (settings_id)
WHERE s.role <> 'panel' AND NOT s.greedy AND s.correct IS NOT NULL
GROUP BY ALL;

-- The base's different responses, how often it drew each, and how likely each is under it.
CREATE OR REPLACE VIEW base_responses AS
SELECT
    s.series,
    s.checkpoint,
    s.step,
    s.checkpoint_id,
    s.task,
    s.problem_id,
    s.response_id,
    any_value(s.correct) AS correct,
    any_value(s.logp_sum_raw) AS logp_sum_raw,
    t.temperature = 1 AND t.top_p = 1 AND t.top_k = 0 AS own_law,
    count(*) AS n
FROM own_samples AS s
JOIN settings AS t USING (settings_id)
WHERE s.is_base AND NOT s.greedy AND s.correct IS NOT NULL
GROUP BY ALL;

-- The greedy response to every problem at every checkpoint.
CREATE OR REPLACE VIEW greedy_grades AS
SELECT series, checkpoint, step, is_base, checkpoint_id, task, problem_id, response_id, answer, correct
FROM graded_samples
WHERE greedy;

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

-- Samples and correct samples per problem, checkpoint and strategy: the mixture of a problem and how right each is.
CREATE OR REPLACE VIEW strategy_counts AS
WITH counted AS (
    SELECT
        series,
        checkpoint,
        step,
        is_base,
        checkpoint_id,
        problem_id,
        strategy,
        count(*) AS n,
        count(*) FILTER (correct) AS n_correct
    FROM graded_samples
    WHERE NOT greedy
    GROUP BY ALL
)
SELECT *, n / sum(n) OVER (PARTITION BY series, checkpoint_id, step, problem_id) AS share
FROM counted;

-- How often each way was gone among the correct samples, as many samples of a problem at every checkpoint. Levels, from
-- fine to coarse: written (every different set of steps), way, operations, final (the last step), strategy.
CREATE OR REPLACE VIEW way_counts AS
WITH solved AS (
    -- every correct response once, before the many samples are joined
    SELECT
        a.audit_id, g.problem_id, g.response_id,
        r.way, r.strategy, r.strategy || ': ' || r.written AS written, r.strategy || ': ' || r.operations AS operations,
        r.strategy || ': ' || r.final_step AS final,
        coalesce(r.why, 'not read yet') AS why
    FROM current_audits AS a
    JOIN audit_problems AS ap USING (audit_id)
    JOIN problems AS p USING (problem_id)
    JOIN grades AS g
        ON g.problem_id = p.problem_id
        AND g.verifier = coalesce(a.verifier, p.verifier)
    LEFT JOIN response_ways AS r
        ON r.problem_id = g.problem_id
        AND r.response_id = g.response_id
    WHERE g.correct
),
told AS (
    SELECT
        w.series, w.checkpoint, w.step, w.is_base, w.checkpoint_id, w.problem_id, w.n_common,
        s.sample_index < w.n_common // 2 AS first_half,
        v.way, v.strategy, v.written, v.operations, v.final, v.why,
        count(*) AS n
    FROM planned_samples AS w
    JOIN samples AS s
        ON s.checkpoint_id = w.checkpoint_id
        AND s.problem_id = w.problem_id
        AND s.settings_id = w.settings_id
        AND s.sample_index < w.n_common
    JOIN solved AS v
        ON v.audit_id = w.audit_id
        AND v.problem_id = s.problem_id
        AND v.response_id = s.response_id
    WHERE NOT s.greedy
    GROUP BY ALL
),
levels AS (
    SELECT *, 'way' AS level, way AS class FROM told
    UNION ALL
    SELECT *, 'written' AS level, written AS class FROM told
    UNION ALL
    SELECT *, 'operations' AS level, operations AS class FROM told
    UNION ALL
    SELECT *, 'final' AS level, final AS class FROM told
    UNION ALL
    SELECT *, 'strategy' AS level, strategy AS class FROM told
)
SELECT
    series,
    checkpoint,
    step,
    is_base,
    checkpoint_id,
    problem_id,
    level,
    class AS way,                       -- NULL: not known
    CASE WHEN class IS NULL THEN why END AS why,
    first_half,
    sum(n)::BIGINT AS n,
    n_common AS n_planned
FROM levels
GROUP BY ALL;

-- The same of what the second verifier accepts.
CREATE OR REPLACE VIEW second_way_counts AS
SELECT r.series, w.* EXCLUDE (series)
FROM second_gradings AS r
JOIN way_counts AS w ON w.series = r.second_series;

-- Samples of the current audits that grade again: what that verifier says beside what the problem's own says.
CREATE OR REPLACE VIEW regraded_samples AS
SELECT
    s.series,
    s.checkpoint,
    s.step,
    s.is_base,
    s.checkpoint_id,
    s.task,
    s.problem_id,
    s.greedy,
    s.sample_index,
    s.response_id,
    s.verifier,
    s.answer,
    s.correct,
    s.state,
    s.own_verifier,
    own.answer AS own_answer,
    own.correct AS own_correct,
    own.reward AS own_reward,
    own.state AS own_state
FROM own_samples AS s
JOIN grades AS own
    ON own.problem_id = s.problem_id
    AND own.response_id = s.response_id
    AND own.verifier = s.own_verifier
WHERE s.correct IS NOT NULL AND s.own_verifier <> s.verifier;

-- Responses that one verifier calls correct and the other does not.
CREATE OR REPLACE VIEW grade_disagreements AS
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

-- ---------------------------------------------------------------- log-probabilities

-- Exact log-probability of every enumerated mode under every checkpoint.
CREATE OR REPLACE VIEW mode_logps AS
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

-- Token entropy of the checkpoint's own samples, in nats: from the sampler where it knows it, else teacher-forced.
CREATE OR REPLACE VIEW sample_entropies AS
SELECT
    s.series,
    s.checkpoint,
    s.step,
    s.checkpoint_id,
    s.problem_id,
    s.sample_index,
    coalesce(s.entropy_sum, r.entropy_sum) AS entropy_sum,
    s.n_tokens
FROM own_samples AS s
LEFT JOIN response_logps AS r USING (checkpoint_id, problem_id, settings_id, response_id)
WHERE NOT s.greedy AND s.sample_index < s.entropy_samples
  AND coalesce(s.entropy_sum, r.entropy_sum) IS NOT NULL;

-- The panel: responses sampled once from the base, and the log-probability that every checkpoint gives them.
CREATE OR REPLACE VIEW panel_logps AS
SELECT
    a.series,
    c.checkpoint,
    c.step,
    c.is_base,
    c.checkpoint_id,
    s.task,
    s.problem_id,
    s.sample_index,                     -- 0 … panel−1
    s.response_id,
    s.correct,
    r.logp_sum,                         -- nats, summed over n_tokens response tokens
    r.entropy_sum,
    r.n_tokens
FROM audit_samples AS s
JOIN current_audits AS a USING (audit_id)
JOIN series_checkpoints AS c ON c.series = a.series
JOIN response_logps AS r
    ON r.checkpoint_id = c.checkpoint_id
    AND r.problem_id = s.problem_id
    AND r.settings_id = a.settings_id
    AND r.response_id = s.response_id
WHERE s.role = 'panel' AND s.correct IS NOT NULL;

-- The first own samples of every checkpoint: log-probability by the sampler, by its own scorer, under the base.
CREATE OR REPLACE VIEW own_logps AS
SELECT
    s.series,
    s.checkpoint,
    s.step,
    s.is_base,
    s.checkpoint_id,
    s.task,
    s.problem_id,
    s.sample_index,
    s.response_id,
    s.correct,
    s.n_tokens,
    s.logp_sum_raw AS sampler_logp_sum,
    own.logp_sum AS own_logp_sum,       -- NULL: not teacher-forced under itself
    base.logp_sum AS base_logp_sum      -- NULL: not teacher-forced under the base
FROM own_samples AS s
JOIN series_checkpoints AS b
    ON b.series = s.series
    AND b.is_base
LEFT JOIN response_logps AS own
    ON own.checkpoint_id = s.checkpoint_id
    AND own.problem_id = s.problem_id
    AND own.settings_id = s.settings_id
    AND own.response_id = s.response_id
LEFT JOIN response_logps AS base
    ON base.checkpoint_id = b.checkpoint_id
    AND base.problem_id = s.problem_id
    AND base.settings_id = s.settings_id
    AND base.response_id = s.response_id
WHERE NOT s.greedy AND s.sample_index < s.panel AND s.correct IS NOT NULL
  AND (own.logp_sum IS NOT NULL OR base.logp_sum IS NOT NULL);

-- Panel responses teacher-forced twice under the same weights: how far rounding alone moves a log-probability.
CREATE OR REPLACE VIEW repeated_logps AS
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
JOIN second_logps AS q
    ON q.checkpoint_id = c.checkpoint_id
    AND q.settings_id = a.settings_id
JOIN response_logps AS r
    ON r.checkpoint_id = q.checkpoint_id
    AND r.problem_id = q.problem_id
    AND r.settings_id = q.settings_id
    AND r.response_id = q.response_id
SEMI JOIN (FROM audit_samples WHERE role = 'panel') AS s
    ON s.audit_id = a.audit_id
    AND s.problem_id = q.problem_id
    AND s.response_id = q.response_id;

-- ---------------------------------------------------------------- gradient kernels

-- One row per checkpoint whose kernel was asked for: its certificate, or why there is none.
CREATE OR REPLACE VIEW kernel_runs AS
SELECT a.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, k.certificate, ak.why
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_kernels AS ak USING (audit_id, checkpoint_id)
LEFT JOIN kernels AS k USING (kernel_id);

-- The responses in the kernels, once per role. Roles:
-- panel  drawn by the base for every checkpoint to teacher-force; the same at every checkpoint
-- mode   enumerated correct responses; the same at every checkpoint
-- own    the checkpoint's own first samples, duplicates included; only where drawn at temperature 1, untruncated
-- batch  drawn by the trainer after this checkpoint, up to the next; problems of the training set
CREATE OR REPLACE VIEW kernel_members AS
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
CREATE OR REPLACE VIEW kernel_pairs AS
SELECT a.series, c.checkpoint, c.step, c.checkpoint_id, v.row_position, v.column_position, v.value
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_kernels AS ak USING (audit_id, checkpoint_id)
JOIN kernel_values AS v USING (kernel_id);

-- ---------------------------------------------------------------- what follows

-- The findings of the current audits: long, tidy, what people query.
CREATE OR REPLACE VIEW findings AS
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
    f.interval_over,
    f.why_no_interval,
    a.series
FROM current_audits AS a
JOIN audit_findings AS f USING (audit_id)
JOIN series_checkpoints AS c
    ON c.series = a.series
    AND c.checkpoint_id = f.checkpoint_id;

-- Measures that had another name once: `oversharp.diagnostics.measures.FORMER_NAMES`.
CREATE OR REPLACE VIEW renamed_measures AS
FROM (VALUES
    ('problems_gained', 'queries_gained'),
    ('problems_kept', 'queries_kept'),
    ('problems_lost', 'queries_lost'),
    ('problems_lost_exact', 'queries_lost_exact'),
    ('problems_over_sharpened', 'queries_over_sharpened')
) AS renamed (measure, formerly);

-- The verdict on every series.
CREATE OR REPLACE VIEW verdicts AS
SELECT a.series, v.label, v.sentence, v.p_exact, v.p_population, v.p_minority, v.k_most, v.document
FROM current_audits AS a
JOIN audit_verdicts AS v USING (audit_id);

-- The claims of every verdict: the tests that it made, and what they say. Verdicts of before have none.
CREATE OR REPLACE VIEW verdict_claims AS
WITH claims AS (
    SELECT
        series,
        unnest(json_transform(document -> '$.claims', '[{
            "name": "VARCHAR", "null": "VARCHAR", "scope": "VARCHAR", "p": "DOUBLE", "level": "DOUBLE",
            "holds": "BOOLEAN", "size": {"value": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE"}, "why": "VARCHAR"
        }]')) AS claim
    FROM verdicts
)
SELECT
    series,
    claim.name AS name,
    claim."null" AS null_hypothesis,
    claim.scope AS scope,
    claim.p AS p,
    claim.level AS level,
    claim.holds AS holds,
    claim.size.value AS size,
    claim.size.low AS low,
    claim.size.high AS high,
    claim.why AS why
FROM claims;

-- What every verdict says of each checkpoint after the base. Verdicts of before say nothing of single ones.
CREATE OR REPLACE VIEW checkpoint_verdicts AS
WITH steps AS (
    SELECT
        series,
        unnest(json_transform(document -> '$.steps', '[{
            "step": "INTEGER", "checkpoint": "VARCHAR", "lost": "BOOLEAN", "kept": "BOOLEAN", "k": "INTEGER",
            "change": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE", "cause": "VARCHAR", "why": "VARCHAR"
        }]')) AS one
    FROM verdicts
),
left_out AS (
    SELECT
        series,
        unnest(json_transform(document -> '$.left_out', '[{
            "step": "INTEGER", "checkpoint": "VARCHAR", "why": "VARCHAR"
        }]')) AS gone
    FROM verdicts
)
SELECT
    series,
    one.step AS step,
    one.checkpoint AS checkpoint,
    one.lost AS lost,
    one.kept AS kept,
    one.k AS k,
    one.change AS change,
    one.low AS low,
    one.high AS high,
    one.cause AS cause,
    one.why AS why
FROM steps
UNION ALL
SELECT
    series,
    gone.step AS step,
    gone.checkpoint AS checkpoint,
    NULL AS lost,
    NULL AS kept,
    NULL AS k,
    NULL AS change,
    NULL AS low,
    NULL AS high,
    NULL AS cause,
    'left out: ' || gone.why AS why
FROM left_out;

-- Which checkpoint to ship of all series that can be compared, and what every other would trade: `oversharp ship`. Each
-- series has its own checkpoints and the base. Verdicts of before say nothing of it.
CREATE OR REPLACE VIEW shipping AS
WITH steps AS (
    SELECT
        series,
        unnest(json_transform(document -> '$.shipping.steps', '[{
            "series": "VARCHAR", "step": "INTEGER", "temperature": "DOUBLE", "is_base": "BOOLEAN", "role": "VARCHAR",
            "may_be_best": "BOOLEAN", "pass_at_1": "DOUBLE",
            "first": {"change": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE"},
            "worst": {"k": "INTEGER", "change": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE"},
            "loss_at_most": "DOUBLE", "out_by": "VARCHAR", "why": "VARCHAR"
        }]')) AS one
    FROM verdicts
)
SELECT
    s.series,
    c.step,
    c.checkpoint,
    s.one.is_base AS is_base,
    s.one.temperature AS temperature,
    s.one.role AS role,
    s.one.may_be_best AS may_be_best,
    s.one.pass_at_1 AS pass_at_1,
    s.one.first.change AS change,
    s.one.first.low AS low,
    s.one.first.high AS high,
    s.one.worst.k AS worst_k,
    s.one.worst.change AS worst_change,
    s.one.worst.low AS worst_low,
    s.one.worst.high AS worst_high,
    s.one.loss_at_most AS loss_at_most,
    s.one.out_by AS out_by,
    s.one.why AS why,
    CASE WHEN k.kind <> 'recorded' THEN c.path END AS path  -- nobody has seen the weights of recorded ones
FROM steps AS s
JOIN series_checkpoints AS c
    ON c.series = s.series
    -- the base of all is told once, under the first series' step and label
    AND CASE WHEN s.one.is_base THEN c.is_base ELSE c.series = s.one.series AND c.step = s.one.step END
LEFT JOIN checkpoints AS k USING (checkpoint_id);

-- Problems drawn afresh, with the checkpoint they were tested at; confirmed where p_adjusted <= 0.05.
CREATE OR REPLACE VIEW confirmed_problems AS
SELECT
    a.series, c.checkpoint, c.step, f.problem_id, f.change,
    f.n_base, f.correct_base, f.n_late, f.correct_late, f.p, f.p_adjusted, f.p_adjusted <= 0.05 AS confirmed
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN confirmations AS f USING (audit_id, checkpoint_id);

-- ---------------------------------------------------------------- token by token
-- Of one connection and not kept: the Parquet files beside the store are listed anew whenever it is opened, so that it
-- can be moved with them. They stand on the relation response_tokens(checkpoint_id, problem_id, settings_id,
-- response_id, token_logps, token_entropies) that database.py makes of them.

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
    s.series,
    s.checkpoint,
    s.step,
    s.is_base,
    s.checkpoint_id,
    s.problem_id,
    s.sample_index,
    s.response_id,
    t.token_logps,
    t.token_entropies
FROM own_samples AS s
JOIN response_tokens AS t USING (checkpoint_id, problem_id, settings_id, response_id)
WHERE NOT s.greedy
  -- what was teacher-forced for its own sake: others were too where they read like a mode or a panel response
  AND (s.sample_index < s.panel OR (s.entropy_sum IS NULL AND s.sample_index < s.entropy_samples));

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
