-- The public views, which users, measures and the report query. COMMENT statements are their documentation: what a row
-- is, and every column with its unit in brackets. They fill docs/views.md and are not executed in a store. A column
-- without a comment means what it means in every view.
-- All but those at the end are kept in the store and recreated when this file has changed.

COMMENT ON COLUMN every_view.series IS 'name of the series';
COMMENT ON COLUMN every_view.checkpoint IS 'label of the checkpoint: its directory''s name';
COMMENT ON COLUMN every_view.step IS 'optimizer step of the checkpoint [steps]';
COMMENT ON COLUMN every_view.is_base IS 'whether it is the checkpoint that the others are compared with';
COMMENT ON COLUMN every_view.checkpoint_id IS 'hash of the weights: equal weights are one checkpoint';
COMMENT ON COLUMN every_view.audit_id IS 'hash of what the audit compares';
COMMENT ON COLUMN every_view.settings_id IS 'hash of the sampling settings';
COMMENT ON COLUMN every_view.task IS 'problem set that the problem is from';
COMMENT ON COLUMN every_view.problem_id IS 'hash of the problem''s content';
COMMENT ON COLUMN every_view.response_id IS 'hash of the response text: equal texts share grade and log-probability';
COMMENT ON COLUMN every_view.greedy IS 'whether it is the greedy response; every other one was drawn';
COMMENT ON COLUMN every_view.sample_index IS '0, 1, … among the samples of this problem and checkpoint; 0 for the greedy one';
COMMENT ON COLUMN every_view.text IS 'the response';
COMMENT ON COLUMN every_view.n_tokens IS 'length of the response, its end token included; NULL if not known [tokens]';
COMMENT ON COLUMN every_view.answer IS 'canonical final answer; NA where none was found';
COMMENT ON COLUMN every_view.mode IS 'canonical form of the whole solution; NULL if it has none';
COMMENT ON COLUMN every_view.correct IS 'whether the response was graded and its reward is full';
COMMENT ON COLUMN every_view.logp_sum_raw IS 'its log-probability as the sampler says, at temperature 1 without truncation; NULL if not known [nats]';
COMMENT ON COLUMN every_view.logp_sum IS 'log-probability of the response, teacher-forced at temperature 1 [nats]';
COMMENT ON COLUMN every_view.entropy_sum IS 'entropy of the next-token distributions, summed over the response [nats]';
COMMENT ON COLUMN every_view.token_logps IS 'log-probability of each token of the response [nats]';
COMMENT ON COLUMN every_view.token_entropies IS 'entropy of the distribution of each token [nats]';
COMMENT ON COLUMN every_view.n IS 'samples, without the greedy one [samples]';
COMMENT ON COLUMN every_view.n_correct IS 'correct ones among them [samples]';
COMMENT ON COLUMN every_view.n_cut IS 'not correct, and cut off before a readable answer stood in a box; NULL where a sample does not tell [samples]';
COMMENT ON COLUMN every_view.n_unread IS 'not correct, not cut off, and no answer could be read; NULL where one of the samples does not tell [samples]';
COMMENT ON COLUMN every_view.n_planned IS 'samples that the audit wants here; fewer are there while it runs [samples]';

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
COMMENT ON VIEW current_audits IS 'the latest audit of a series';
COMMENT ON COLUMN current_audits.n IS 'samples per problem and checkpoint [samples]';
COMMENT ON COLUMN current_audits.n_base IS 'samples per problem from the base [samples]';
COMMENT ON COLUMN current_audits.entropy_samples IS 'of those, the ones that token entropy is taken from [samples]';
COMMENT ON COLUMN current_audits.ks IS 'values of k for pass@k [samples]';
COMMENT ON COLUMN current_audits.strategy_regex IS 'a response that matches is of the strategy code';
COMMENT ON COLUMN current_audits.updated_at IS 'when the audit was begun';
COMMENT ON COLUMN current_audits.provenance IS 'command line, versions, and what was left out';
COMMENT ON COLUMN current_audits.panel IS 'panel responses per problem; 0 without a panel [responses]';
COMMENT ON COLUMN current_audits.panel_settings_id IS 'hash of the panel''s sampling settings';
COMMENT ON COLUMN current_audits.kernel_problems IS 'problems in the gradient kernel; 0 without one [problems]';
COMMENT ON COLUMN current_audits.kernel_responses IS 'fixed responses, and own samples, of each of them [responses]';
COMMENT ON COLUMN current_audits.verifier IS 'whose grades count; NULL for each problem''s own verifier';
COMMENT ON COLUMN current_audits.guess_rate IS 'of wrong responses, the accepted, as the user says; NULL if unsaid [probability]';
COMMENT ON COLUMN current_audits.selected_by IS 'base if the base''s samples chose the problems, none if not; NULL if not given';
COMMENT ON COLUMN current_audits.looks IS 'how often its verdict will be read while training goes on; NULL for any number';
COMMENT ON COLUMN current_audits.runs IS 'of so many runs one will be chosen';

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
COMMENT ON VIEW planned_samples IS 'a problem at a checkpoint, with the number of samples that the audit wants of it';
COMMENT ON COLUMN planned_samples.n_planned IS 'samples of this problem that the audit wants from this checkpoint [samples]';
COMMENT ON COLUMN planned_samples.n_common IS 'samples of this problem that it wants from every checkpoint [samples]';

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
COMMENT ON VIEW own_samples IS 'a sample drawn from a checkpoint that the audit rests on, graded or not';
COMMENT ON COLUMN own_samples.role IS 'own, as `audit_samples` calls it';
COMMENT ON COLUMN own_samples.token_ids IS 'tokens of the response, its end token included; NULL if not known';
COMMENT ON COLUMN own_samples.finish_reason IS 'stop: it ended by itself; length: it was cut off; NULL if not known';
COMMENT ON COLUMN own_samples.entropy_sum IS 'entropy of the distributions it was drawn from, summed; NULL if the sampler does not say [nats]';
COMMENT ON COLUMN own_samples.answer IS 'canonical final answer; NA where none was found, NULL while it is not graded';
COMMENT ON COLUMN own_samples.reward IS 'what the verifier gave; 1 is full; NULL while it is not graded [reward]';
COMMENT ON COLUMN own_samples.correct IS 'whether its reward is full; NULL while it is not graded';
COMMENT ON COLUMN own_samples.state IS 'ok, parse_fail, ambiguous, timeout or error: what became of the grading';
COMMENT ON COLUMN own_samples.reason IS 'why the state is not ok';
COMMENT ON COLUMN own_samples.n_boxed IS 'different contents of its \boxed{}; NULL where the verifier does not look at boxes [answers]';
COMMENT ON COLUMN own_samples.rules IS 'by which rules of the verifier; NULL for another tool or package';
COMMENT ON COLUMN own_samples.answer_style IS 'how the answer is stated: boxed, tagged (<answer>), hashes (####), labelled, bare, prose or none; NULL where the verifier reads no text';
COMMENT ON COLUMN own_samples.lenient IS 'whether it is correct, or a lenient reader accepts it; NULL where there is none';
COMMENT ON COLUMN own_samples.verifier IS 'whose grade counts in this series';
COMMENT ON COLUMN own_samples.own_verifier IS 'the problem''s own; recorded:TOOL is a tool''s';
COMMENT ON COLUMN own_samples.n_planned IS 'samples of this problem and role that the audit wants from this checkpoint [samples]';
COMMENT ON COLUMN own_samples.n_common IS 'samples of this problem and role that it wants from every checkpoint [samples]';
COMMENT ON COLUMN own_samples.panel IS 'the first of its own samples that are teacher-forced as the panel is [samples]';
COMMENT ON COLUMN own_samples.entropy_samples IS 'the first of them that token entropy is taken from [samples]';
COMMENT ON COLUMN own_samples.strategy_regex IS 'a response that matches is of the strategy code';

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
COMMENT ON VIEW audit_samples IS 'a sample that the audit rests on, graded or not, once per role';
COMMENT ON COLUMN audit_samples.role IS 'own (drawn from this checkpoint), panel (of the base, under settings of its own) or control';
COMMENT ON COLUMN audit_samples.token_ids IS 'tokens of the response, its end token included; NULL if not known';
COMMENT ON COLUMN audit_samples.finish_reason IS 'stop: it ended by itself; length: it was cut off; NULL if not known';
COMMENT ON COLUMN audit_samples.entropy_sum IS 'entropy of the distributions it was drawn from, summed; NULL if the sampler does not say [nats]';
COMMENT ON COLUMN audit_samples.answer IS 'canonical final answer; NA where none was found, NULL while it is not graded';
COMMENT ON COLUMN audit_samples.reward IS 'what the verifier gave; 1 is full; NULL while it is not graded [reward]';
COMMENT ON COLUMN audit_samples.correct IS 'whether its reward is full; NULL while it is not graded';
COMMENT ON COLUMN audit_samples.state IS 'ok, parse_fail, ambiguous, timeout or error: what became of the grading';
COMMENT ON COLUMN audit_samples.reason IS 'why the state is not ok';
COMMENT ON COLUMN audit_samples.n_boxed IS 'different contents of its \boxed{}; NULL where the verifier does not look at boxes [answers]';
COMMENT ON COLUMN audit_samples.rules IS 'by which rules of the verifier; NULL for another tool or package';
COMMENT ON COLUMN audit_samples.answer_style IS 'how the answer is stated: boxed, tagged (<answer>), hashes (####), labelled, bare, prose or none; NULL where the verifier reads no text';
COMMENT ON COLUMN audit_samples.lenient IS 'whether it is correct, or a lenient reader accepts it; NULL where there is none';
COMMENT ON COLUMN audit_samples.verifier IS 'whose grade counts in this series';
COMMENT ON COLUMN audit_samples.own_verifier IS 'the problem''s own; recorded:TOOL is a tool''s';
COMMENT ON COLUMN audit_samples.n_planned IS 'samples of this problem and role that the audit wants from this checkpoint [samples]';
COMMENT ON COLUMN audit_samples.n_common IS 'samples of this problem and role that it wants from every checkpoint [samples]';
COMMENT ON COLUMN audit_samples.panel IS 'the first of its own samples that are teacher-forced as the panel is [samples]';
COMMENT ON COLUMN audit_samples.entropy_samples IS 'the first of them that token entropy is taken from [samples]';
COMMENT ON COLUMN audit_samples.strategy_regex IS 'a response that matches is of the strategy code';

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
COMMENT ON VIEW graded_samples IS 'a sampled response with its grade [largest]';
COMMENT ON COLUMN graded_samples.n_tokens IS 'length of the response, its end token included; NULL if not known [tokens]';
COMMENT ON COLUMN graded_samples.finish_reason IS 'stop: it ended by itself; length: it was cut off; NULL if not known';
COMMENT ON COLUMN graded_samples.reward IS 'what the verifier gave; 1 is full [reward]';
COMMENT ON COLUMN graded_samples.state IS 'ok, parse_fail, ambiguous, timeout or error: what became of the grading';
COMMENT ON COLUMN graded_samples.reason IS 'why the state is not ok';
COMMENT ON COLUMN graded_samples.n_boxed IS 'different contents of its \boxed{}; NULL where the verifier does not look at boxes [answers]';
COMMENT ON COLUMN graded_samples.answer_style IS 'how the answer is stated: boxed, tagged (<answer>), hashes (####), labelled, bare, prose or none; NULL where the verifier reads no text';
COMMENT ON COLUMN graded_samples.lenient IS 'whether it is correct, or a lenient reader accepts it; NULL where there is none';
COMMENT ON COLUMN graded_samples.strategy IS 'code where the text matches the audit''s strategy pattern, else prose';
COMMENT ON COLUMN graded_samples.looped IS 'whether it was cut off while it repeated a passage; NULL if nobody tells how it ended';
COMMENT ON COLUMN graded_samples.reconsiders IS 'whether it takes something back; NULL beyond a problem''s first 32';
COMMENT ON COLUMN graded_samples.common IS 'whether it is one of the first n_common: as many at every checkpoint';
COMMENT ON COLUMN graded_samples.n_planned IS 'samples of this problem that the audit wants from this checkpoint [samples]';
COMMENT ON COLUMN graded_samples.n_common IS 'samples of this problem that it wants from every checkpoint [samples]';

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
COMMENT ON VIEW problem_counts IS 'a problem at a checkpoint, with as many samples of it at every checkpoint: what a comparison needs';

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
COMMENT ON VIEW sampled_counts IS 'a problem at a checkpoint, with all its samples (the base has more): what pass@k rests on';

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
COMMENT ON VIEW read_counts IS 'the same, with what became of the samples that are not correct';

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
COMMENT ON VIEW control_counts IS 'a problem at a temperature other than the audit''s own: of the base sharper, of a checkpoint hotter';
COMMENT ON COLUMN control_counts.temperature IS 'what it was drawn at [temperature]';
COMMENT ON COLUMN control_counts.own_temperature IS 'what the audit''s own samples were drawn at [temperature]';
COMMENT ON COLUMN control_counts.n_planned IS 'samples of this problem that the audit wants at this temperature [samples]';

-- The series that hold what `oversharp regrade` says of the samples of another: of several verifiers the one asked last.
CREATE OR REPLACE VIEW second_gradings AS
SELECT a.series, b.series AS second_series, b.verifier
FROM current_audits AS a
JOIN current_audits AS b
    ON b.settings_id = a.settings_id
    AND b.series = a.series || ' (' || b.verifier || ')'
WHERE a.verifier IS NULL
QUALIFY row_number() OVER (PARTITION BY a.series ORDER BY b.updated_at DESC, b.audit_id) = 1;
COMMENT ON VIEW second_gradings IS 'a series that `oversharp regrade` graded again';
COMMENT ON COLUMN second_gradings.second_series IS 'the series with the second grades; of several verifiers, of the one asked last';
COMMENT ON COLUMN second_gradings.verifier IS 'the second verifier';

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
COMMENT ON VIEW second_counts IS 'a problem at a checkpoint and temperature, as the verifier of second_gradings grades its samples';
COMMENT ON COLUMN second_counts.temperature IS 'what it was drawn at; NULL where that is the audit''s own [temperature]';
COMMENT ON COLUMN second_counts.verifier IS 'the second verifier';
COMMENT ON COLUMN second_counts.n_planned IS 'samples of this problem that the audit wants at this temperature [samples]';

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
COMMENT ON VIEW base_responses IS 'a different response of the base to a problem, among its own samples [from texts]';
COMMENT ON COLUMN base_responses.own_law IS 'whether the base was drawn at temperature 1, untruncated';
COMMENT ON COLUMN base_responses.n IS 'how often the base gave it [samples]';

-- The greedy response to every problem at every checkpoint.
CREATE OR REPLACE VIEW greedy_grades AS
SELECT series, checkpoint, step, is_base, checkpoint_id, task, problem_id, response_id, answer, correct
FROM graded_samples
WHERE greedy;
COMMENT ON VIEW greedy_grades IS 'the greedy response to a problem at a checkpoint';

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
COMMENT ON VIEW answer_counts IS 'an answer to a problem at a checkpoint, among as many samples at every checkpoint [from texts]';
COMMENT ON COLUMN answer_counts.n IS 'how often it was given [samples]';
COMMENT ON COLUMN answer_counts.n_planned IS 'samples of this problem that the audit wants from every checkpoint [samples]';

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
COMMENT ON VIEW strategy_counts IS 'a strategy of a problem at a checkpoint, code or prose: how often it is taken, and how often it is right [from texts]';
COMMENT ON COLUMN strategy_counts.strategy IS 'code where the text matches the audit''s strategy pattern, else prose';
COMMENT ON COLUMN strategy_counts.share IS 'of this problem''s samples: the mixture of strategies [share of samples]';

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
COMMENT ON VIEW way_counts IS 'a way of solving a problem at a checkpoint, among as many samples at every checkpoint [from texts]';
COMMENT ON COLUMN way_counts.level IS 'way, the finer written, or the coarser operations, final (last step) or strategy; each has all samples';
COMMENT ON COLUMN way_counts.way IS 'the class at that level, by name; NULL where it is not known';
COMMENT ON COLUMN way_counts.why IS 'why it is not known; NULL if it is';
COMMENT ON COLUMN way_counts.first_half IS 'whether these are samples of the first half, which chooses the leading way';
COMMENT ON COLUMN way_counts.n IS 'correct samples of that way and half [samples]';
COMMENT ON COLUMN way_counts.n_planned IS 'samples of this problem that the audit wants from every checkpoint [samples]';

-- The same of what the second verifier accepts.
CREATE OR REPLACE VIEW second_way_counts AS
SELECT r.series, w.* EXCLUDE (series)
FROM second_gradings AS r
JOIN way_counts AS w ON w.series = r.second_series;
COMMENT ON VIEW second_way_counts IS 'the same of what the verifier of second_gradings accepts [from texts]';
COMMENT ON COLUMN second_way_counts.level IS 'way, the finer written, or the coarser operations, final (last step) or strategy; each has all samples';
COMMENT ON COLUMN second_way_counts.way IS 'the class at that level, by name; NULL where it is not known';
COMMENT ON COLUMN second_way_counts.why IS 'why it is not known; NULL if it is';
COMMENT ON COLUMN second_way_counts.first_half IS 'whether these are samples of the first half, which chooses the leading way';
COMMENT ON COLUMN second_way_counts.n IS 'correct samples of that way and half [samples]';
COMMENT ON COLUMN second_way_counts.n_planned IS 'samples of this problem that the audit wants from every checkpoint [samples]';

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
COMMENT ON VIEW regraded_samples IS 'a sampled response of a series that grades samples again, with both grades';
COMMENT ON COLUMN regraded_samples.verifier IS 'who grades in this series';
COMMENT ON COLUMN regraded_samples.state IS 'ok, parse_fail, ambiguous, timeout or error: what became of that grading';
COMMENT ON COLUMN regraded_samples.own_verifier IS 'the problem''s own: whose grades the first series uses; recorded:TOOL is a tool''s';
COMMENT ON COLUMN regraded_samples.own_answer IS 'canonical final answer by the problem''s own verifier; NA where none was found';
COMMENT ON COLUMN regraded_samples.own_correct IS 'whether the problem''s own verifier accepted it';
COMMENT ON COLUMN regraded_samples.own_reward IS 'what the problem''s own verifier, or tool, gave [reward]';
COMMENT ON COLUMN regraded_samples.own_state IS 'what became of that grading';

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
COMMENT ON VIEW grade_disagreements IS 'a response that one of two verifiers calls correct and the other does not';
COMMENT ON COLUMN grade_disagreements.verifier IS 'who grades in this series';
COMMENT ON COLUMN grade_disagreements.state IS 'ok, parse_fail, ambiguous, timeout or error: what became of that grading';
COMMENT ON COLUMN grade_disagreements.own_verifier IS 'the problem''s own: whose grades the first series uses; recorded:TOOL is a tool''s';
COMMENT ON COLUMN grade_disagreements.own_answer IS 'canonical final answer by the problem''s own verifier; NA where none was found';
COMMENT ON COLUMN grade_disagreements.own_correct IS 'whether the problem''s own verifier accepted it';
COMMENT ON COLUMN grade_disagreements.own_state IS 'what became of that grading';
COMMENT ON COLUMN grade_disagreements.n IS 'how often the checkpoint gave it [samples]';

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
COMMENT ON VIEW mode_logps IS 'an enumerated correct response of a problem, scored under a checkpoint';
COMMENT ON COLUMN mode_logps.mode IS 'text of the enumerated response';

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
COMMENT ON VIEW sample_entropies IS 'a response whose token entropy is known, from the sampler or teacher-forced [needs checkpoints]';

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
COMMENT ON VIEW panel_logps IS 'a panel response (drawn once, by the base) scored under a checkpoint [needs checkpoints]';
COMMENT ON COLUMN panel_logps.sample_index IS '0, 1, … among the panel responses of its problem';

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
COMMENT ON VIEW own_logps IS 'one of the first own samples of a checkpoint, scored [needs checkpoints]';
COMMENT ON COLUMN own_logps.sampler_logp_sum IS 'log-probability as the sampler says [nats]';
COMMENT ON COLUMN own_logps.own_logp_sum IS 'teacher-forced under its own checkpoint; NULL if not scored [nats]';
COMMENT ON COLUMN own_logps.base_logp_sum IS 'teacher-forced under the base; NULL if not scored [nats]';

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
COMMENT ON VIEW repeated_logps IS 'a panel response scored twice under the same weights, in batches of other shapes [needs checkpoints]';
COMMENT ON COLUMN repeated_logps.logp_sum IS 'its log-probability the first time [nats]';
COMMENT ON COLUMN repeated_logps.second_logp_sum IS 'and the second time [nats]';

-- ---------------------------------------------------------------- gradient kernels

-- One row per checkpoint whose kernel was asked for: its certificate, or why there is none.
CREATE OR REPLACE VIEW kernel_runs AS
SELECT a.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, k.certificate, ak.why
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_kernels AS ak USING (audit_id, checkpoint_id)
LEFT JOIN kernels AS k USING (kernel_id);
COMMENT ON VIEW kernel_runs IS 'a checkpoint whose gradient kernel was asked for [needs checkpoints, first series]';
COMMENT ON COLUMN kernel_runs.certificate IS 'relative residual of the random-sign test; NULL without a kernel [1]';
COMMENT ON COLUMN kernel_runs.why IS 'why there is no kernel; NULL if there is one';

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
COMMENT ON VIEW kernel_members IS 'a response in a kernel, once per role [needs checkpoints, first series]';
COMMENT ON COLUMN kernel_members.position IS 'its row and column in the kernel, from 0';
COMMENT ON COLUMN kernel_members.role IS 'panel (of the base), mode (enumerated), own (sample of this checkpoint) or batch (of the trainer)';
COMMENT ON COLUMN kernel_members.sample_index IS '0, 1, … among the responses of its problem in this role';
COMMENT ON COLUMN kernel_members.task IS 'problem set that the problem is from; training for a batch';
COMMENT ON COLUMN kernel_members.related IS 'problems of one name here are related';

-- The kernels' upper triangles, diagonal included.
CREATE OR REPLACE VIEW kernel_pairs AS
SELECT a.series, c.checkpoint, c.step, c.checkpoint_id, v.row_position, v.column_position, v.value
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_kernels AS ak USING (audit_id, checkpoint_id)
JOIN kernel_values AS v USING (kernel_id);
COMMENT ON VIEW kernel_pairs IS 'two responses in a kernel; the upper triangle, the diagonal included [needs checkpoints, first series]';
COMMENT ON COLUMN kernel_pairs.row_position IS 'position of the one';
COMMENT ON COLUMN kernel_pairs.column_position IS 'position of the other';
COMMENT ON COLUMN kernel_pairs.value IS 'inner product of the gradients of their log-probabilities [squared gradient norm]';

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
COMMENT ON VIEW findings IS 'a number that the audit stands behind, or why there is none';
COMMENT ON COLUMN findings.measure IS 'name of the measure; `oversharp explain NAME` says what it means';
COMMENT ON COLUMN findings.scope IS 'what the value is of: `all` is the whole problem set';
COMMENT ON COLUMN findings.k IS 'number of samples that pass@k and its kin allow; NULL elsewhere [samples]';
COMMENT ON COLUMN findings.value IS 'the value; NULL if unknown, then `why` says why [see `unit`]';
COMMENT ON COLUMN findings.low IS 'lower end of its 95 % interval; NULL where it has none [see `unit`]';
COMMENT ON COLUMN findings.high IS 'upper end of its 95 % interval; NULL where it has none [see `unit`]';
COMMENT ON COLUMN findings.n IS 'problems, samples, tokens, … that the value rests on [units of the measure]';
COMMENT ON COLUMN findings.unit IS 'unit of value, low and high';
COMMENT ON COLUMN findings.why IS 'why the value is unknown; NULL if it is known';
COMMENT ON COLUMN findings.interval_over IS 'what the interval takes as independent: problems, or clusters; NULL without one';
COMMENT ON COLUMN findings.why_no_interval IS 'why related problems leave no interval; NULL if they do not matter';

-- Measures that had another name once: `oversharp.diagnostics.measures.FORMER_NAMES`.
CREATE OR REPLACE VIEW renamed_measures AS
FROM (VALUES
    ('problems_gained', 'queries_gained'),
    ('problems_kept', 'queries_kept'),
    ('problems_lost', 'queries_lost'),
    ('problems_lost_exact', 'queries_lost_exact'),
    ('problems_over_sharpened', 'queries_over_sharpened')
) AS renamed (measure, formerly);
COMMENT ON VIEW renamed_measures IS 'a measure that had another name once: queries written for that find its rows in findings by this one';
COMMENT ON COLUMN renamed_measures.measure IS 'name of the measure';
COMMENT ON COLUMN renamed_measures.formerly IS 'name that it had';

-- The verdict on every series.
CREATE OR REPLACE VIEW verdicts AS
SELECT
    a.series,
    v.document ->> '$.heading' AS heading,
    v.label,
    v.document ->> '$.attributes.where' AS place,
    v.document ->> '$.attributes.scope' AS scope,
    v.document ->> '$.attributes.pass_at_1' AS pass_at_1,
    v.document ->> '$.attributes.kind' AS kind,
    v.sentence,
    v.p_exact,
    v.p_population,
    v.p_minority,
    v.k_most,
    v.document
FROM current_audits AS a
JOIN audit_verdicts AS v USING (audit_id);
COMMENT ON VIEW verdicts IS 'the verdict on a series';
COMMENT ON COLUMN verdicts.heading IS 'coverage_lost, no_loss, not_shown or no_verdict';
COMMENT ON COLUMN verdicts.label IS 'the test that decided: over_sharpened, degraded, mode_collapse, no_loss, inconclusive, …';
COMMENT ON COLUMN verdicts.place IS 'window or single checkpoints';
COMMENT ON COLUMN verdicts.scope IS 'population or these problems';
COMMENT ON COLUMN verdicts.pass_at_1 IS 'up or down where the 95 % interval of its change excludes 0, else open';
COMMENT ON COLUMN verdicts.kind IS 'of a loss: whole problems, modes or diffuse; NULL without a loss';
COMMENT ON COLUMN verdicts.sentence IS 'the verdict in one sentence';
COMMENT ON COLUMN verdicts.p_exact IS 'p value, these problems: pass@k fell at no k [probability]';
COMMENT ON COLUMN verdicts.p_population IS 'p value, problems like these: pass@k fell at no k [probability]';
COMMENT ON COLUMN verdicts.p_minority IS 'p value, these problems: no correct minority mode was lost [probability]';
COMMENT ON COLUMN verdicts.k_most IS 'the verdict holds for k = 1 … k_most [samples]';
COMMENT ON COLUMN verdicts.document IS 'all of the verdict: the fields of `oversharp.diagnostics.verdict.record.Verdict`';

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
COMMENT ON VIEW verdict_claims IS 'a claim that a verdict tested';
COMMENT ON COLUMN verdict_claims.name IS 'name of the claim';
COMMENT ON COLUMN verdict_claims.null_hypothesis IS 'what the claim says is false';
COMMENT ON COLUMN verdict_claims.scope IS 'which problems it is about';
COMMENT ON COLUMN verdict_claims.p IS 'p value of the null hypothesis; NULL where it was not tested [probability]';
COMMENT ON COLUMN verdict_claims.level IS 'the claim holds where p is at most this; NULL where it was not tested [probability]';
COMMENT ON COLUMN verdict_claims.holds IS 'whether the claim holds';
COMMENT ON COLUMN verdict_claims.size IS 'change of pass@k; of `some problem lost` the share of problems [probability, or share]';
COMMENT ON COLUMN verdict_claims.low IS 'lower end of its interval; NULL where it has none [as size]';
COMMENT ON COLUMN verdict_claims.high IS 'upper end of its interval; NULL where it has none [as size]';
COMMENT ON COLUMN verdict_claims.why IS 'why it was not tested or what it rests on; NULL if nothing is to be said';

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
COMMENT ON VIEW checkpoint_verdicts IS 'a checkpoint after the base, with what the verdict says of it';
COMMENT ON COLUMN checkpoint_verdicts.lost IS 'whether it surely lost what the base had; NULL if it was not tested';
COMMENT ON COLUMN checkpoint_verdicts.kept IS 'whether it surely kept it; NULL if it was not tested';
COMMENT ON COLUMN checkpoint_verdicts.k IS 'where its pass@k changed as said [samples]';
COMMENT ON COLUMN checkpoint_verdicts.change IS 'its pass@k less the base''s; NULL if unknown [probability]';
COMMENT ON COLUMN checkpoint_verdicts.low IS 'lower end of the interval of the change; NULL where it has none [probability]';
COMMENT ON COLUMN checkpoint_verdicts.high IS 'upper end of the interval of the change; NULL where it has none [probability]';
COMMENT ON COLUMN checkpoint_verdicts.cause IS 'what else may explain a loss: format, guessing, unread; NULL: nothing, or nobody asked';
COMMENT ON COLUMN checkpoint_verdicts.why IS 'why nothing is said of it; NULL where something is';

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
COMMENT ON VIEW shipping IS 'a checkpoint as something to ship, or what a control drew of it: what `oversharp ship` says of all series that can be compared';
COMMENT ON COLUMN shipping.temperature IS 'at which a control drew it; NULL for the audit''s own [temperature]';
COMMENT ON COLUMN shipping.role IS 'recommended, candidate, or out: not to be shipped; NULL where nothing can be said';
COMMENT ON COLUMN shipping.may_be_best IS 'whether no candidate surely has a higher pass@1; one of these is the best, in 95 %';
COMMENT ON COLUMN shipping.pass_at_1 IS 'its pass@1; NULL if unknown [probability]';
COMMENT ON COLUMN shipping.change IS 'its pass@1 less the base''s; NULL at the base [probability]';
COMMENT ON COLUMN shipping.low IS 'lower end of the band of that change over all checkpoints and k [probability]';
COMMENT ON COLUMN shipping.high IS 'upper end of it [probability]';
COMMENT ON COLUMN shipping.worst_k IS 'where its pass@k less the base''s is lowest [samples]';
COMMENT ON COLUMN shipping.worst_change IS 'its pass@k less the base''s there; NULL at the base [probability]';
COMMENT ON COLUMN shipping.worst_low IS 'lower end of the band of that change [probability]';
COMMENT ON COLUMN shipping.worst_high IS 'upper end of it [probability]';
COMMENT ON COLUMN shipping.loss_at_most IS 'surely at no k did its pass@k fall by more; NULL at the base [probability]';
COMMENT ON COLUMN shipping.out_by IS 'what shows that it is out: band, verdict, estimate, reach or veto; NULL for others';
COMMENT ON COLUMN shipping.why IS 'why it is out, or why nothing can be said; NULL for others';
COMMENT ON COLUMN shipping.path IS 'where its weights were read last; NULL where another tool drew the samples';

-- Problems drawn afresh, with the checkpoint they were tested at; confirmed where p_adjusted <= 0.05.
CREATE OR REPLACE VIEW confirmed_problems AS
SELECT
    a.series, c.checkpoint, c.step, f.problem_id, f.change,
    f.n_base, f.correct_base, f.n_late, f.correct_late, f.p, f.p_adjusted, f.p_adjusted <= 0.05 AS confirmed
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN confirmations AS f USING (audit_id, checkpoint_id);
COMMENT ON VIEW confirmed_problems IS 'a problem that seemed lost or gained, drawn afresh at the base and at a late checkpoint';
COMMENT ON COLUMN confirmed_problems.checkpoint IS 'label of the late checkpoint';
COMMENT ON COLUMN confirmed_problems.step IS 'optimizer step of the late checkpoint [steps]';
COMMENT ON COLUMN confirmed_problems.change IS 'lost or gained: what it seemed';
COMMENT ON COLUMN confirmed_problems.n_base IS 'fresh samples of the base [samples]';
COMMENT ON COLUMN confirmed_problems.correct_base IS 'correct ones among them [samples]';
COMMENT ON COLUMN confirmed_problems.n_late IS 'fresh samples of the late checkpoint [samples]';
COMMENT ON COLUMN confirmed_problems.correct_late IS 'correct ones among them [samples]';
COMMENT ON COLUMN confirmed_problems.p IS 'one-sided p value of Fisher''s exact test [probability]';
COMMENT ON COLUMN confirmed_problems.p_adjusted IS 'the same, corrected for all problems that were drawn again (Holm) [probability]';
COMMENT ON COLUMN confirmed_problems.confirmed IS 'whether p_adjusted is at most 0.05';

-- ---------------------------------------------------------------- token by token
-- Of one connection and not kept: the Parquet files beside the store are listed anew whenever it is opened, so that it
-- can be moved with them. They stand on the relation response_tokens(checkpoint_id, problem_id, settings_id,
-- response_id, token_logps, token_entropies) that database.py makes of them.

-- The Parquet files of token scores, registered by each connection.
COMMENT ON TABLE response_tokens IS 'a scored response, token by token, whatever it was scored for';
COMMENT ON COLUMN response_tokens.settings_id IS 'hash of the settings whose template the prompt was wrapped in';

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
COMMENT ON VIEW panel_tokens IS 'a panel response under a checkpoint, token by token [needs checkpoints, token files]';
COMMENT ON COLUMN panel_tokens.sample_index IS '0, 1, … among the panel responses of its problem';

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
COMMENT ON VIEW own_tokens IS 'an own sample of a checkpoint under itself, token by token [needs checkpoints, token files]';

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
COMMENT ON VIEW training_tokens IS 'a response of a training batch, under the checkpoint after it and the one before, token by token [needs checkpoints, token files, first series, training prompts]';
COMMENT ON COLUMN training_tokens.problem_id IS 'hash of the training prompt';
COMMENT ON COLUMN training_tokens.token_logps IS 'log-probability of each token under the later checkpoint [nats]';
COMMENT ON COLUMN training_tokens.token_logps_before IS 'log-probability of each token under the earlier one [nats]';
