-- Public views for users, measures and the report. COMMENT statements document the row of each view, and each column
-- with its unit in brackets. docs/views.md is generated from them. They are not executed in a store. The comments of
-- `every_view` apply to every column without a separate comment.
-- The views are stored in the file, except the last ones. They are recreated if this file has changed.

COMMENT ON COLUMN every_view.series IS 'name of the series';
COMMENT ON COLUMN every_view.checkpoint IS 'label of the checkpoint: name of its directory';
COMMENT ON COLUMN every_view.step IS 'optimizer step of the checkpoint [steps]';
COMMENT ON COLUMN every_view.is_base IS 'whether this is the base, with which all other checkpoints are compared';
COMMENT ON COLUMN every_view.checkpoint_id IS 'hash of the weights; with the step added if an earlier step of the series has equal weights';
COMMENT ON COLUMN every_view.audit_id IS 'hash of series, problems, settings and sample counts of the audit';
COMMENT ON COLUMN every_view.settings_id IS 'hash of the sampling settings';
COMMENT ON COLUMN every_view.task IS 'problem set that contains the problem';
COMMENT ON COLUMN every_view.problem_id IS 'hash of the problem''s content';
COMMENT ON COLUMN every_view.response_id IS 'hash of the response text; equal texts share their grade and log-probability';
COMMENT ON COLUMN every_view.greedy IS 'whether it is the greedy response; false for samples';
COMMENT ON COLUMN every_view.sample_index IS '0, 1, … among the samples of this problem and checkpoint; 0 for the greedy response';
COMMENT ON COLUMN every_view.text IS 'the response';
COMMENT ON COLUMN every_view.token_ids IS 'tokens of the response, its end token included; NULL if unknown';
COMMENT ON COLUMN every_view.n_tokens IS 'length of the response, its end token included; NULL if unknown [tokens]';
COMMENT ON COLUMN every_view.finish_reason IS 'stop: ended by an end token; length: truncated at the token limit; NULL if unknown';
COMMENT ON COLUMN every_view.answer IS 'canonical final answer; NA without one; NULL until it is graded';
COMMENT ON COLUMN every_view.mode IS 'canonical form of the whole solution; NULL without one';
COMMENT ON COLUMN every_view.reward IS 'reward by the verifier; 1 is full; NULL until it is graded [reward]';
COMMENT ON COLUMN every_view.correct IS 'whether the reward is full; NULL until it is graded';
COMMENT ON COLUMN every_view.state IS 'result of grading: ok, parse_fail, ambiguous, timeout or error';
COMMENT ON COLUMN every_view.reason IS 'why the state is not ok; for code tasks also the first failed test and the sandbox';
COMMENT ON COLUMN every_view.n_boxed IS 'number of distinct \boxed{} contents in the response; NULL if the verifier does not parse boxes [answers]';
COMMENT ON COLUMN every_view.rules IS 'version of the verifier''s rules that graded it; NULL for an imported tool or a plugin';
COMMENT ON COLUMN every_view.answer_style IS 'how the answer is written: boxed, tagged (<answer>), hashes (####), labelled, bare, prose or none; NULL if the verifier parses no text';
COMMENT ON COLUMN every_view.lenient IS 'whether it is correct, or the lenient reader accepts it; NULL if the verifier has no lenient reader';
COMMENT ON COLUMN every_view.verifier IS 'verifier whose grades this series uses';
COMMENT ON COLUMN every_view.own_verifier IS 'the problem''s own verifier; recorded:TOOL for the rewards of an imported tool';
COMMENT ON COLUMN every_view.own_answer IS 'canonical final answer by the problem''s own verifier; NA without one';
COMMENT ON COLUMN every_view.own_correct IS 'whether the problem''s own verifier accepted it';
COMMENT ON COLUMN every_view.own_state IS 'result of grading by the problem''s own verifier, as state';
COMMENT ON COLUMN every_view.strategy_regex IS 'regular expression; a matching response has the strategy code';
COMMENT ON COLUMN every_view.strategy IS 'code if the text matches the audit''s strategy_regex, else prose';
COMMENT ON COLUMN every_view.level IS 'how finely responses are classified: written (finest), way, operations, final (last step) or strategy (coarsest); every level has all samples';
COMMENT ON COLUMN every_view.first_half IS 'whether these samples are in the first half, from which the leading way is chosen';
COMMENT ON COLUMN every_view.logp_sum_raw IS 'log-probability from the sampler, at temperature 1 and without top-p or top-k; NULL if unknown [nats]';
COMMENT ON COLUMN every_view.logp_sum IS 'log-probability of the response, teacher-forced at temperature 1 [nats]';
COMMENT ON COLUMN every_view.entropy_sum IS 'entropy of the next-token distributions, summed over the response; NULL if a server scored it [nats]';
COMMENT ON COLUMN every_view.token_logps IS 'log-probability of each token of the response [nats]';
COMMENT ON COLUMN every_view.token_entropies IS 'entropy of the next-token distribution at each token; NULL if a server scored it [nats]';
COMMENT ON COLUMN every_view.n IS 'number of samples, without the greedy response [samples]';
COMMENT ON COLUMN every_view.n_correct IS 'number of correct samples [samples]';
COMMENT ON COLUMN every_view.n_cut IS 'number of incorrect samples that were truncated before a readable boxed answer; NULL if a finish reason is unknown [samples]';
COMMENT ON COLUMN every_view.n_unread IS 'number of incorrect samples that were not truncated and have no readable answer; NULL if a grading state is unknown [samples]';
COMMENT ON COLUMN every_view.n_planned IS 'planned number of samples of this problem, for the checkpoint, role or temperature of the row; fewer exist until the audit ends [samples]';
COMMENT ON COLUMN every_view.n_cap IS 'largest number of samples of a problem at this checkpoint: n_base for the base, else n [samples]';
COMMENT ON COLUMN every_view.n_common IS 'number of samples of this problem (and role) that are planned at every checkpoint [samples]';
COMMENT ON COLUMN every_view.n_first_round IS 'samples of this problem in the first round; all planned ones in an audit without a stopping rule [samples]';
COMMENT ON COLUMN every_view.n_reach IS 'number of samples up to which this problem is sampled at every checkpoint unless it is solved; n_common in an audit without a stopping rule [samples]';
COMMENT ON COLUMN every_view.in_first_round IS 'whether it is one of the first n_first_round samples; how many samples follow depends on the grades of these';
COMMENT ON COLUMN every_view.solved IS 'whether one of the first n_reach samples is correct; NULL if some of them are missing and no other one is correct';

-- ---------------------------------------------------------------- macros on texts

-- Whether a text ends in a loop: a passage of at most 200 characters, repeated three times or more, over at least 60.
CREATE OR REPLACE MACRO ends_in_a_loop(text) AS list_transform(
    -- period of the loop: distance to the previous occurrence of the last 20 characters
    [(reverse(right(text, 600)), instr(substr(reverse(right(text, 600)), 2), left(reverse(right(text, 600)), 20)))],
    lambda t: t[2] BETWEEN 1 AND 200
        AND length(t[1]) >= greatest(60, 3 * t[2])
        AND left(t[1], greatest(60, 3 * t[2]) - t[2]) = substr(t[1], t[2] + 1, greatest(60, 3 * t[2]) - t[2])
)[1];

-- Whether a text reconsiders an earlier step, by English phrases.
CREATE OR REPLACE MACRO takes_something_back(text) AS regexp_matches(
    text,
    '(?i)\b(wait|hold on)\b[ ,.!-]|\blet me (re-?check|double[- ]check|re-?consider|re-?think|re-?calculate|try again)\b'
        || '|\bi (made|see) (a|an|my) (mistake|error)\b|\b(that|this)(''s| is) (wrong|incorrect|not right|not correct)\b'
        || '|\bactually, '
);

-- Why an incorrect sample has no answer: 'cut' if the token limit truncated it before a readable boxed answer, else
-- 'unread'. NULL for all other samples, including those that were truncated after a boxed answer.
CREATE OR REPLACE MACRO why_unread(correct, finish_reason, state, n_boxed) AS CASE
    WHEN correct OR (state IS NOT DISTINCT FROM 'ok' AND coalesce(n_boxed, 0) > 0) THEN NULL
    WHEN finish_reason = 'length' THEN 'cut'
    WHEN state <> 'ok' THEN 'unread'
END;

-- ---------------------------------------------------------------- planned and drawn samples

-- The latest audit of every series. The report shows it.
CREATE OR REPLACE VIEW current_audits AS
SELECT *
FROM audits
QUALIFY row_number() OVER (PARTITION BY series ORDER BY updated_at DESC, audit_id) = 1;
COMMENT ON VIEW current_audits IS 'the latest audit of a series';
COMMENT ON COLUMN current_audits.n IS 'samples per problem and checkpoint; at most, if enough is given [samples]';
COMMENT ON COLUMN current_audits.n_base IS 'samples per problem from the base; at most, if enough is given [samples]';
COMMENT ON COLUMN current_audits.first_round IS 'samples per problem in the first round, equal at every checkpoint; NULL without rounds [samples]';
COMMENT ON COLUMN current_audits.enough IS 'a problem is not sampled further after the round that leaves it with this number of correct samples; NULL: every problem has n samples [samples]';
COMMENT ON COLUMN current_audits.entropy_samples IS 'number of samples per problem that are used for token entropy [samples]';
COMMENT ON COLUMN current_audits.ks IS 'values of k for pass@k [samples]';
COMMENT ON COLUMN current_audits.updated_at IS 'when the audit began';
COMMENT ON COLUMN current_audits.provenance IS 'command line, versions, and left-out checkpoints';
COMMENT ON COLUMN current_audits.panel IS 'number of panel responses per problem; 0 without a panel [responses]';
COMMENT ON COLUMN current_audits.panel_settings_id IS 'hash of the panel''s sampling settings';
COMMENT ON COLUMN current_audits.kernel_problems IS 'number of problems in the gradient kernel; 0 without a kernel [problems]';
COMMENT ON COLUMN current_audits.kernel_responses IS 'number of fixed responses, and also of own samples, per problem in the kernel [responses]';
COMMENT ON COLUMN current_audits.verifier IS 'verifier whose grades the audit uses; NULL for each problem''s own verifier';
COMMENT ON COLUMN current_audits.guess_rate IS 'false-accept rate of the graders on wrong responses; NULL if the user gave none [probability]';
COMMENT ON COLUMN current_audits.selected_by IS 'base if the problems were selected by samples of the base, none if not; NULL if the user did not say';
COMMENT ON COLUMN current_audits.looks IS 'number of looks at the verdict that the user planned during training; NULL for any number';
COMMENT ON COLUMN current_audits.runs IS 'number of runs of which one will be chosen';

-- Planned samples of each problem of the current audits: at this checkpoint, at every checkpoint, and at most.
CREATE OR REPLACE VIEW planned_samples AS
WITH capped AS (
    SELECT
        a.audit_id, a.series, a.settings_id, c.checkpoint_id, c.checkpoint, c.step, c.is_base, ap.problem_id,
        CASE WHEN c.is_base THEN a.n_base ELSE a.n END AS n_cap,
        a.first_round
    FROM current_audits AS a
    JOIN series_checkpoints AS c USING (series)
    JOIN audit_problems AS ap USING (audit_id)
),
planned AS (
    SELECT
        w.*,
        CASE
            WHEN w.first_round IS NOT NULL THEN coalesce(st.n, least(w.first_round, w.n_cap))
            WHEN w.is_base THEN greatest(w.n_cap, st.n)  -- an import may have more samples
            ELSE coalesce(st.n, w.n_cap)
        END AS n_planned
    FROM capped AS w
    LEFT JOIN stops AS st USING (audit_id, checkpoint_id, settings_id, problem_id)
)
SELECT
    * EXCLUDE (n_cap, first_round),
    -- in rounds, the later ones depend on the samples of the first
    CASE WHEN first_round IS NULL THEN n_planned ELSE least(first_round, n_cap) END AS n_first_round,
    min(n_first_round) OVER (PARTITION BY audit_id, problem_id) AS n_common,
    -- an unsolved problem is sampled up to the cap
    min(CASE WHEN first_round IS NULL THEN n_planned ELSE n_cap END)
        OVER (PARTITION BY audit_id, problem_id) AS n_reach,
    n_cap
FROM planned;
COMMENT ON VIEW planned_samples IS 'a problem at a checkpoint, with the number of samples that the audit plans';

-- The first n_planned samples of every checkpoint of the current audits, with grades where they exist. This view is
-- separate from audit_samples because DuckDB would also plan the queries of the other roles, which takes longer than
-- this query. One SELECT joins samples and grades, because DuckDB does not reorder joins across a subquery.
CREATE OR REPLACE VIEW own_samples AS
SELECT
    w.audit_id, w.series, w.checkpoint, w.step, w.is_base, w.checkpoint_id, p.task, w.problem_id,
    'own' AS role, s.* EXCLUDE (checkpoint_id, problem_id), g.* EXCLUDE (problem_id, response_id, verifier),
    coalesce(a.verifier, p.verifier) AS verifier, p.verifier AS own_verifier,
    w.n_planned, w.n_first_round, w.n_common, w.n_reach, w.n_cap, a.panel, a.entropy_samples, a.strategy_regex
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
COMMENT ON VIEW own_samples IS 'a sample of a checkpoint that the audit uses, with its grade if it has one';
COMMENT ON COLUMN own_samples.role IS 'always own, as in `audit_samples`';
COMMENT ON COLUMN own_samples.entropy_sum IS 'sum of the entropies of the distributions that its tokens were sampled from; NULL if the sampler reports none [nats]';
COMMENT ON COLUMN own_samples.panel IS 'number of its first own samples that are teacher-forced like the panel [samples]';
COMMENT ON COLUMN own_samples.entropy_samples IS 'number of its first own samples that are used for token entropy [samples]';

-- All samples that the current audits use, graded or not, one row per sample and role:
-- own      own_samples
-- panel    sampled once from the base, under separate settings, and teacher-forced by every checkpoint
-- control  sampled at another temperature: lower for the base, higher for a checkpoint
CREATE OR REPLACE VIEW audit_samples AS
WITH panel AS (
    SELECT
        a.audit_id, a.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, p.task, ap.problem_id,
        'panel' AS role, s.* EXCLUDE (checkpoint_id, problem_id), g.* EXCLUDE (problem_id, response_id, verifier),
        coalesce(a.verifier, p.verifier) AS verifier, p.verifier AS own_verifier,
        a.panel AS n_planned, a.panel AS n_first_round, a.panel AS n_common, a.panel AS n_reach, a.panel AS n_cap,
        a.panel, a.entropy_samples, a.strategy_regex
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
        CASE WHEN a.first_round IS NULL THEN o.n ELSE coalesce(st.n, least(a.first_round, o.n)) END AS n_planned,
        least(coalesce(a.first_round, o.n), o.n) AS n_first_round,
        least(coalesce(a.first_round, o.n), o.n) AS n_common,
        o.n AS n_reach, o.n AS n_cap,
        a.panel, a.entropy_samples, a.strategy_regex
    FROM current_audits AS a
    JOIN audit_controls AS o USING (audit_id)
    JOIN series_checkpoints AS c
        ON c.series = a.series
        AND c.checkpoint_id = o.checkpoint_id
    JOIN audit_problems AS ap USING (audit_id)
    JOIN problems AS p USING (problem_id)
    LEFT JOIN stops AS st
        ON st.audit_id = o.audit_id
        AND st.checkpoint_id = o.checkpoint_id
        AND st.settings_id = o.settings_id
        AND st.problem_id = ap.problem_id
    JOIN samples AS s
        ON s.checkpoint_id = o.checkpoint_id
        AND s.problem_id = ap.problem_id
        AND s.settings_id = o.settings_id
        AND NOT s.greedy
        AND s.sample_index
            < CASE WHEN a.first_round IS NULL THEN o.n ELSE coalesce(st.n, least(a.first_round, o.n)) END
    LEFT JOIN grades AS g
        ON g.problem_id = s.problem_id
        AND g.response_id = s.response_id
        AND g.verifier = coalesce(a.verifier, p.verifier)
)
FROM own_samples UNION ALL FROM panel UNION ALL FROM control;
COMMENT ON VIEW audit_samples IS 'a sample that the audit uses, with its grade if it has one; one row per role';
COMMENT ON COLUMN audit_samples.role IS 'own (of this checkpoint), panel (of the base, under separate settings) or control (at another temperature)';
COMMENT ON COLUMN audit_samples.entropy_sum IS 'sum of the entropies of the distributions that its tokens were sampled from; NULL if the sampler reports none [nats]';
COMMENT ON COLUMN audit_samples.panel IS 'number of its first own samples that are teacher-forced like the panel [samples]';
COMMENT ON COLUMN audit_samples.entropy_samples IS 'number of its first own samples that are used for token entropy [samples]';

-- ---------------------------------------------------------------- graded samples

-- Graded samples of the current audits, one row per sample.
CREATE OR REPLACE VIEW graded_samples AS
SELECT
    s.series, s.checkpoint, s.step, s.is_base, s.checkpoint_id, s.task, s.problem_id, s.greedy,
    s.sample_index, s.response_id, s.text, s.n_tokens, s.finish_reason, s.logp_sum_raw, s.answer, s.mode,
    s.reward, s.correct,
    CASE WHEN s.verifier NOT LIKE 'recorded:%' THEN s.state END AS state,  -- unknown for imported rewards
    s.reason, s.n_boxed, s.answer_style, s.lenient,
    CASE WHEN regexp_matches(s.text, s.strategy_regex) THEN 'code' ELSE 'prose' END AS strategy,
    CASE WHEN s.finish_reason = 'length' THEN ends_in_a_loop(s.text) ELSE s.finish_reason <> 'stop' END AS looped,
    CASE WHEN s.sample_index < 32 THEN takes_something_back(s.text) END AS reconsiders,  -- slow, so only the first 32
    s.sample_index < s.n_common AS common,  -- these exist at every checkpoint
    s.sample_index < s.n_first_round AS in_first_round,
    s.n_planned, s.n_first_round, s.n_common, s.n_reach, s.n_cap
FROM own_samples AS s
WHERE s.correct IS NOT NULL;
COMMENT ON VIEW graded_samples IS 'a sampled response with its grade [largest]';
COMMENT ON COLUMN graded_samples.looped IS 'whether it was truncated while repeating a passage; NULL if the finish reason is unknown';
COMMENT ON COLUMN graded_samples.reconsiders IS 'whether it corrects an earlier step; NULL beyond a problem''s first 32 samples';
COMMENT ON COLUMN graded_samples.common IS 'whether it is one of the first n_common samples, which exist at every checkpoint';

-- Number of samples and of correct samples per problem and checkpoint, without greedy ones. The number of samples of a
-- problem is equal at every checkpoint: with a stopping rule, that of the first round. Whether a problem is solved in
-- n_reach samples is known without drawing all of them.
CREATE OR REPLACE VIEW problem_counts AS
WITH counted AS (
    SELECT
        series, checkpoint, step, is_base, checkpoint_id, task, problem_id,
        count(*) FILTER (common) AS n,
        count(*) FILTER (common AND correct) AS n_correct,
        n_common AS n_planned,
        count(*) AS n_reached,
        bool_or(correct) AS solved,
        n_reach
    FROM graded_samples
    WHERE NOT greedy AND sample_index < n_reach
    GROUP BY ALL
)
SELECT
    * EXCLUDE (n_reached) REPLACE (CASE WHEN solved OR n_reached >= n_reach THEN solved END AS solved)
FROM counted
WHERE n > 0;
COMMENT ON VIEW problem_counts IS 'a problem at a checkpoint; all checkpoints have the same number of samples of it, so they can be compared';

-- The same counts over all samples, of which the base has more. pass@k is computed from them.
CREATE OR REPLACE VIEW sampled_counts AS
SELECT
    series, checkpoint, step, is_base, checkpoint_id, task, problem_id,
    count(*) AS n,
    count(*) FILTER (correct) AS n_correct,
    n_planned, n_cap
FROM graded_samples
WHERE NOT greedy
GROUP BY ALL;
COMMENT ON VIEW sampled_counts IS 'a problem at a checkpoint, with all its samples: the base has more, and with a stopping rule easy problems have fewer; pass@k is computed from it';

-- As sampled_counts, with the number of incorrect samples that were truncated before an answer or have an unparsed
-- answer. NULL if this is unknown for any sample. With a stopping rule, only the first round counts.
CREATE OR REPLACE VIEW read_counts AS
SELECT
    series, checkpoint, step, is_base, checkpoint_id, task, problem_id,
    count(*) AS n,
    count(*) FILTER (correct) AS n_correct,
    CASE WHEN count(finish_reason) = count(*)
        THEN count(*) FILTER (why_unread(correct, finish_reason, state, n_boxed) = 'cut') END AS n_cut,
    CASE WHEN count(state) = count(*)
        THEN count(*) FILTER (why_unread(correct, finish_reason, state, n_boxed) = 'unread') END AS n_unread,
    n_first_round AS n_planned, n_cap
FROM graded_samples
WHERE NOT greedy AND in_first_round
GROUP BY ALL;
COMMENT ON VIEW read_counts IS 'a problem at a checkpoint, as in `sampled_counts`, with the numbers of truncated and of unparsed incorrect samples; with a stopping rule, only its first round counts';

-- Number of samples and of correct samples per problem of the controls: the base at lower temperatures, checkpoints at
-- higher ones.
CREATE OR REPLACE VIEW control_counts AS
SELECT
    s.series, s.checkpoint, s.step, s.is_base, s.checkpoint_id, t.temperature,
    own.temperature AS own_temperature,
    s.task, s.problem_id,
    count(*) AS n,
    count(*) FILTER (s.correct) AS n_correct,
    count(*) FILTER (s.sample_index < s.n_common) AS n_first,
    count(*) FILTER (s.sample_index < s.n_common AND s.correct) AS n_first_correct,
    count(*) FILTER (
        s.sample_index < s.n_common AND why_unread(s.correct, s.finish_reason, s.state, s.n_boxed) = 'cut'
    ) AS n_cut,
    count(*) FILTER (
        s.sample_index < s.n_common AND why_unread(s.correct, s.finish_reason, s.state, s.n_boxed) = 'unread'
    ) AS n_unread,
    s.n_planned, s.n_cap
FROM audit_samples AS s
JOIN settings AS t USING (settings_id)
JOIN current_audits AS a USING (audit_id)
JOIN settings AS own ON own.settings_id = a.settings_id
WHERE s.role = 'control' AND s.correct IS NOT NULL
GROUP BY ALL;
COMMENT ON VIEW control_counts IS 'a problem at a temperature other than the audit''s own: lower for the base, higher for a checkpoint';
COMMENT ON COLUMN control_counts.n_first IS 'number of samples of the first round; without a stopping rule all [samples]';
COMMENT ON COLUMN control_counts.n_first_correct IS 'number of correct ones among n_first [samples]';
COMMENT ON COLUMN control_counts.n_cut IS 'number of incorrect samples among n_first that were truncated before a readable boxed answer [samples]';
COMMENT ON COLUMN control_counts.n_unread IS 'number of incorrect samples among n_first that were not truncated and have no readable answer [samples]';
COMMENT ON COLUMN control_counts.n_cap IS 'largest number of samples of a problem at this temperature [samples]';
COMMENT ON COLUMN control_counts.temperature IS 'sampling temperature of the control [temperature]';
COMMENT ON COLUMN control_counts.own_temperature IS 'sampling temperature of the audit''s own samples [temperature]';

-- Series created by `oversharp regrade`: samples of another series with the grades of a second verifier. If a series
-- was regraded several times, only the latest.
CREATE OR REPLACE VIEW second_gradings AS
SELECT a.series, b.series AS second_series, b.verifier
FROM current_audits AS a
JOIN current_audits AS b
    ON b.settings_id = a.settings_id
    AND b.series = a.series || ' (' || b.verifier || ')'
WHERE a.verifier IS NULL
QUALIFY row_number() OVER (PARTITION BY a.series ORDER BY b.updated_at DESC, b.audit_id) = 1;
COMMENT ON VIEW second_gradings IS 'a series that `oversharp regrade` graded with a second verifier';
COMMENT ON COLUMN second_gradings.second_series IS 'the series with the second grades; the latest one if there are several';
COMMENT ON COLUMN second_gradings.verifier IS 'the second verifier';

-- Number of samples that the second verifier accepts, per problem: own samples (with a stopping rule only those of the
-- first round), and controls with their temperature.
CREATE OR REPLACE VIEW second_counts AS
SELECT
    r.series, s.checkpoint, s.step, s.is_base, s.checkpoint_id,
    CASE WHEN s.role = 'control' THEN t.temperature END AS temperature,  -- NULL: own samples
    s.task, s.problem_id, s.verifier,
    count(*) AS n,
    count(*) FILTER (s.correct) AS n_correct,
    count(*) FILTER (why_unread(s.correct, s.finish_reason, s.state, s.n_boxed) = 'cut') AS n_cut,
    count(*) FILTER (why_unread(s.correct, s.finish_reason, s.state, s.n_boxed) = 'unread') AS n_unread,
    s.n_first_round AS n_planned
FROM second_gradings AS r
JOIN audit_samples AS s ON s.series = r.second_series
JOIN settings AS t USING (settings_id)
WHERE s.role <> 'panel' AND NOT s.greedy AND s.correct IS NOT NULL AND s.sample_index < s.n_first_round
GROUP BY ALL;
COMMENT ON VIEW second_counts IS 'a problem at a checkpoint and temperature, counted with the grades of the second verifier (`second_gradings`)';
COMMENT ON COLUMN second_counts.temperature IS 'sampling temperature of a control; NULL for the audit''s own samples [temperature]';
COMMENT ON COLUMN second_counts.verifier IS 'the second verifier';

-- Distinct responses of the base, with their number of samples and log-probability. With a stopping rule, only the
-- first round counts: a problem that is sampled until it is solved has seen too many of its correct responses.
CREATE OR REPLACE VIEW base_responses AS
SELECT
    s.series, s.checkpoint, s.step, s.checkpoint_id, s.task, s.problem_id, s.response_id,
    any_value(s.correct) AS correct,
    any_value(s.logp_sum_raw) AS logp_sum_raw,
    t.temperature = 1 AND t.top_p = 1 AND t.top_k = 0 AS own_law,
    count(*) AS n
FROM own_samples AS s
JOIN settings AS t USING (settings_id)
WHERE s.is_base AND NOT s.greedy AND s.correct IS NOT NULL AND s.sample_index < s.n_first_round
GROUP BY ALL;
COMMENT ON VIEW base_responses IS 'a distinct response of the base to a problem, among its own samples; with a stopping rule, among those of the first round [from texts]';
COMMENT ON COLUMN base_responses.own_law IS 'whether the base was sampled at temperature 1 without top-p or top-k';
COMMENT ON COLUMN base_responses.n IS 'samples of the base with this response [samples]';

-- The greedy response to every problem at every checkpoint.
CREATE OR REPLACE VIEW greedy_grades AS
SELECT series, checkpoint, step, is_base, checkpoint_id, task, problem_id, response_id, answer, correct
FROM graded_samples
WHERE greedy;
COMMENT ON VIEW greedy_grades IS 'the greedy response to a problem at a checkpoint';

-- Number of samples with each answer. The number of samples of a problem is equal at every checkpoint. Answer entropy
-- is computed from this view.
CREATE OR REPLACE VIEW answer_counts AS
SELECT
    series, checkpoint, step, checkpoint_id, problem_id, answer, mode, correct,
    count(*) AS n,
    n_common AS n_planned
FROM graded_samples
WHERE NOT greedy AND common
GROUP BY ALL;
COMMENT ON VIEW answer_counts IS 'an answer to a problem at a checkpoint; all checkpoints have the same number of samples of the problem [from texts]';
COMMENT ON COLUMN answer_counts.n IS 'samples with this answer [samples]';
COMMENT ON COLUMN answer_counts.n_planned IS 'planned samples of this problem at every checkpoint [samples]';

-- Number of samples and of correct samples per problem, checkpoint and strategy. With a stopping rule, only the first
-- round counts.
CREATE OR REPLACE VIEW strategy_counts AS
WITH counted AS (
    SELECT
        series, checkpoint, step, is_base, checkpoint_id, problem_id, strategy,
        count(*) AS n,
        count(*) FILTER (correct) AS n_correct
    FROM graded_samples
    WHERE NOT greedy AND in_first_round
    GROUP BY ALL
)
SELECT *, n / sum(n) OVER (PARTITION BY series, checkpoint_id, step, problem_id) AS share
FROM counted;
COMMENT ON VIEW strategy_counts IS 'a strategy (code or prose) for a problem at a checkpoint, with its samples and correct samples [from texts]';
COMMENT ON COLUMN strategy_counts.share IS 'share of this problem''s samples with this strategy [share of samples]';

-- Number of correct samples of each way of solving. The number of samples of a problem is equal at every checkpoint.
-- Levels, from fine to coarse: written (every distinct set of steps), way, operations, final (the last step), strategy.
CREATE OR REPLACE VIEW way_counts AS
WITH solved AS (
    -- each correct response has one row before the join with the samples
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
counted AS (
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
    SELECT *, 'way' AS level, way AS class FROM counted
    UNION ALL
    SELECT *, 'written' AS level, written AS class FROM counted
    UNION ALL
    SELECT *, 'operations' AS level, operations AS class FROM counted
    UNION ALL
    SELECT *, 'final' AS level, final AS class FROM counted
    UNION ALL
    SELECT *, 'strategy' AS level, strategy AS class FROM counted
)
SELECT
    series, checkpoint, step, is_base, checkpoint_id, problem_id, level,
    class AS way,                       -- NULL: unknown
    CASE WHEN class IS NULL THEN why END AS why,
    first_half,
    sum(n)::BIGINT AS n,
    n_common AS n_planned
FROM levels
GROUP BY ALL;
COMMENT ON VIEW way_counts IS 'a way of solving a problem at a checkpoint; all checkpoints have the same number of samples of the problem [from texts]';
COMMENT ON COLUMN way_counts.way IS 'name of the class at this level; NULL if unknown';
COMMENT ON COLUMN way_counts.why IS 'why the class is unknown; NULL if it is known';
COMMENT ON COLUMN way_counts.n IS 'correct samples of this way and half [samples]';
COMMENT ON COLUMN way_counts.n_planned IS 'planned samples of this problem at every checkpoint [samples]';

-- As way_counts, for responses that the second verifier accepts.
CREATE OR REPLACE VIEW second_way_counts AS
SELECT r.series, w.* EXCLUDE (series)
FROM second_gradings AS r
JOIN way_counts AS w ON w.series = r.second_series;
COMMENT ON VIEW second_way_counts IS 'a way of solving a problem at a checkpoint, as in `way_counts`, but only over responses that the second verifier accepts (`second_gradings`) [from texts]';
COMMENT ON COLUMN second_way_counts.way IS 'name of the class at this level; NULL if unknown';
COMMENT ON COLUMN second_way_counts.why IS 'why the class is unknown; NULL if it is known';
COMMENT ON COLUMN second_way_counts.n IS 'correct samples of this way and half [samples]';
COMMENT ON COLUMN second_way_counts.n_planned IS 'planned samples of this problem at every checkpoint [samples]';

-- Samples of regraded series, with the grades of the second verifier and of the problem's own verifier.
CREATE OR REPLACE VIEW regraded_samples AS
SELECT
    s.series, s.checkpoint, s.step, s.is_base, s.checkpoint_id, s.task, s.problem_id, s.greedy,
    s.sample_index, s.response_id, s.verifier, s.answer, s.correct, s.state, s.own_verifier,
    own.answer AS own_answer,
    own.correct AS own_correct,
    own.reward AS own_reward,
    own.state AS own_state,
    s.sample_index < s.n_first_round AS in_first_round
FROM own_samples AS s
JOIN grades AS own
    ON own.problem_id = s.problem_id
    AND own.response_id = s.response_id
    AND own.verifier = s.own_verifier
WHERE s.correct IS NOT NULL AND s.own_verifier <> s.verifier;
COMMENT ON VIEW regraded_samples IS 'a sampled response of a regraded series, with both grades';
COMMENT ON COLUMN regraded_samples.own_reward IS 'reward by the problem''s own verifier, or by the imported tool [reward]';

-- Responses that only one of the two verifiers accepts.
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
COMMENT ON VIEW grade_disagreements IS 'a response that only one of the two verifiers accepts';
COMMENT ON COLUMN grade_disagreements.n IS 'samples of the checkpoint with this response [samples]';

-- ---------------------------------------------------------------- log-probabilities

-- Exact log-probability of every enumerated mode under every checkpoint.
CREATE OR REPLACE VIEW mode_logps AS
SELECT
    a.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, m.problem_id, m.mode, r.logp_sum, r.n_tokens
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_problems AS ap USING (audit_id)
JOIN modes AS m USING (problem_id)
JOIN response_logps AS r
    ON r.checkpoint_id = c.checkpoint_id
    AND r.problem_id = m.problem_id
    AND r.settings_id = a.settings_id
    AND r.response_id = m.response_id;
COMMENT ON VIEW mode_logps IS 'an enumerated correct response of a problem, with its log-probability under a checkpoint';
COMMENT ON COLUMN mode_logps.mode IS 'text of the enumerated response';

-- Token entropy in nats of the checkpoint's own samples: from the sampler if it reports entropies, else teacher-forced.
CREATE OR REPLACE VIEW sample_entropies AS
SELECT
    s.series, s.checkpoint, s.step, s.checkpoint_id, s.problem_id, s.sample_index,
    coalesce(s.entropy_sum, r.entropy_sum) AS entropy_sum,
    s.n_tokens
FROM own_samples AS s
LEFT JOIN response_logps AS r USING (checkpoint_id, problem_id, settings_id, response_id)
WHERE NOT s.greedy AND s.sample_index < s.entropy_samples AND s.sample_index < s.n_first_round
  AND coalesce(s.entropy_sum, r.entropy_sum) IS NOT NULL;
COMMENT ON VIEW sample_entropies IS 'a response with known token entropy, from the sampler or from teacher forcing [needs checkpoints]';

-- Sums of log-probabilities from the sampler over the first round of samples, at temperature 1 without top-p and top-k.
-- There a sampled token's negative log-probability has the entropy of its distribution as expected value.
CREATE OR REPLACE VIEW sampled_logps AS
SELECT
    s.series, s.checkpoint, s.step, s.checkpoint_id, s.problem_id, s.n_first_round,
    count(*) AS n,
    -- in a fixed order: a parallel sum of doubles is not reproducible
    sum(s.logp_sum_raw ORDER BY s.sample_index) AS logp_sum,
    sum(s.n_tokens) AS n_tokens
FROM own_samples AS s
JOIN settings AS t USING (settings_id)
WHERE NOT s.greedy AND s.sample_index < s.n_first_round
  AND t.temperature = 1 AND coalesce(t.top_p, 1) = 1 AND coalesce(t.top_k, 0) = 0
  AND isfinite(s.logp_sum_raw) AND s.n_tokens > 0
GROUP BY s.series, s.checkpoint, s.step, s.checkpoint_id, s.problem_id, s.n_first_round;
COMMENT ON VIEW sampled_logps IS 'a problem at a checkpoint, with sums over the samples of the first round that have a log-probability from their sampler, at temperature 1 without top-p and top-k';
COMMENT ON COLUMN sampled_logps.n IS 'samples with a log-probability [samples]';
COMMENT ON COLUMN sampled_logps.logp_sum IS 'sum of their log-probabilities [nats]';
COMMENT ON COLUMN sampled_logps.n_tokens IS 'sum of their response tokens [tokens]';

-- ---------------------------------------------------------------- trajectories

-- Turns of the own samples that have several turns or tool calls.
CREATE OR REPLACE VIEW turns AS
WITH unnested AS (
    SELECT
        s.series, s.checkpoint, s.step, s.is_base, s.checkpoint_id, s.task, s.problem_id, s.sample_index, s.greedy,
        s.correct, s.response_id,
        generate_subscripts(t.turns, 1) - 1 AS turn,  -- 0, 1, …
        unnest(t.turns) AS content
    FROM own_samples AS s
    JOIN trajectories AS t USING (response_id)
)
SELECT
    * EXCLUDE (content),
    content.role AS role,
    content.text AS text,
    content.reasoning AS reasoning,
    content.calls AS calls,
    content.name AS name,
    content.is_error AS is_error,
    content.n_tokens AS n_tokens
FROM unnested;
COMMENT ON VIEW turns IS 'a turn of a sample that has several turns or tool calls';
COMMENT ON COLUMN turns.turn IS 'index of the turn, from 0';
COMMENT ON COLUMN turns.text IS 'text of the message, without reasoning and calls';
COMMENT ON COLUMN turns.reasoning IS 'reasoning before the text; NULL without';
COMMENT ON COLUMN turns.calls IS 'tool calls of the turn; see the view `calls`';
COMMENT ON COLUMN turns.name IS 'tool of an observation, if the dump names it';
COMMENT ON COLUMN turns.is_error IS 'whether the call of an observation failed; NULL if the dump does not say';
COMMENT ON COLUMN turns.n_tokens IS 'tokens of the turn; NULL if the dump does not say [tokens]';
COMMENT ON COLUMN turns.role IS 'assistant (the model), tool, user or system';

-- Tool calls of these samples, with their observations. An index into the list of all turns would copy it for each call.
CREATE OR REPLACE VIEW calls AS
WITH unnested AS (
    SELECT response_id, generate_subscripts(turns, 1) - 1 AS turn, unnest(turns) AS content
    FROM trajectories
),
made AS (
    SELECT response_id, turn, generate_subscripts(content.calls, 1) - 1 AS call, unnest(content.calls) AS content
    FROM unnested
)
SELECT
    s.series, s.checkpoint, s.step, s.is_base, s.checkpoint_id, s.task, s.problem_id, s.sample_index, s.greedy,
    s.correct, s.response_id,
    c.turn, c.call,
    c.content.name AS name,
    c.content.arguments AS arguments,
    c.content.is_valid AS is_valid,
    r.content.text AS observation,
    r.content.is_error AS is_error
FROM own_samples AS s
JOIN made AS c USING (response_id)
LEFT JOIN unnested AS r ON r.response_id = c.response_id AND r.turn = c.content.result;
COMMENT ON VIEW calls IS 'a tool call of a sample, with its observation';
COMMENT ON COLUMN calls.turn IS 'index of the turn with the call, from 0';
COMMENT ON COLUMN calls.name IS 'tool';
COMMENT ON COLUMN calls.arguments IS 'JSON, or the text of the model if it is no JSON';
COMMENT ON COLUMN calls.observation IS 'text of the result; NULL without';
COMMENT ON COLUMN calls.is_error IS 'whether the call failed; NULL if the dump does not say';
COMMENT ON COLUMN calls.call IS 'index of the call within its turn, from 0';
COMMENT ON COLUMN calls.is_valid IS 'whether its arguments are a JSON object, and the tool that wrote the dump could read it';

-- Samples of the first round with the shape of their trajectory, in series in which any sample has several turns or
-- calls. A plain response has one turn.
CREATE OR REPLACE VIEW agent_samples AS
WITH with_turns AS (
    SELECT DISTINCT c.series
    FROM trajectories AS t
    JOIN samples AS s USING (response_id)
    JOIN series_checkpoints AS c USING (checkpoint_id)
),
shapes AS (
    SELECT
        response_id,
        len(list_filter(turns, lambda turn: turn.role = 'assistant')) AS n_turns,
        flatten(list_transform(turns, lambda turn: coalesce(turn.calls, []))) AS calls
    FROM trajectories
)
SELECT
    s.series, s.checkpoint, s.step, s.is_base, s.checkpoint_id, s.task, s.problem_id, s.sample_index, s.correct,
    s.n_first_round AS n_planned,
    coalesce(h.n_turns, 1) AS n_turns,
    coalesce(len(h.calls), 0) AS n_calls,
    coalesce(len(list_filter(h.calls, lambda call: NOT call.is_valid)), 0) AS n_invalid,
    coalesce(
        list_max(map_values(list_aggregate(
            list_transform(h.calls, lambda call: call.name || ' ' || call.arguments), 'histogram'
        ))),
        0
    ) AS n_repeated,
    hash(list_transform(coalesce(h.calls, []), lambda call: call.name)) AS tools,
    hash(list_transform(coalesce(h.calls, []), lambda call: call.name || ' ' || call.arguments)) AS calls
FROM own_samples AS s
SEMI JOIN with_turns USING (series)
LEFT JOIN shapes AS h USING (response_id)
WHERE NOT s.greedy AND s.sample_index < s.n_first_round AND s.correct IS NOT NULL;
COMMENT ON VIEW agent_samples IS 'a sample of a series with trajectories, with its numbers of turns and calls [trajectories]';
COMMENT ON COLUMN agent_samples.n_turns IS 'turns of the model [turns]';
COMMENT ON COLUMN agent_samples.n_calls IS 'tool calls [calls]';
COMMENT ON COLUMN agent_samples.n_invalid IS 'calls that are not valid; see the view `calls` [calls]';
COMMENT ON COLUMN agent_samples.n_repeated IS 'number of its most frequent call [calls]';
COMMENT ON COLUMN agent_samples.tools IS 'hash of the names of the called tools, in order';
COMMENT ON COLUMN agent_samples.calls IS 'hash of the calls with their arguments, in order';

-- Samples of the first round that call a tool.
CREATE OR REPLACE VIEW tool_users AS
WITH named AS (
    SELECT
        s.series, s.checkpoint, s.step, s.checkpoint_id, s.problem_id, s.sample_index,
        unnest(flatten(list_transform(t.turns, lambda turn: coalesce(turn.calls, [])))).name AS name
    FROM own_samples AS s
    JOIN trajectories AS t USING (response_id)
    WHERE NOT s.greedy AND s.sample_index < s.n_first_round AND s.correct IS NOT NULL
)
SELECT
    series, checkpoint, step, checkpoint_id, problem_id,
    CASE WHEN name = '' THEN 'unreadable' ELSE name END AS tool,
    count(DISTINCT sample_index) AS n,
    count(*) AS n_calls
FROM named
GROUP BY ALL;
COMMENT ON VIEW tool_users IS 'a tool and a problem at a checkpoint, with the number of samples that call the tool [trajectories]';
COMMENT ON COLUMN tool_users.tool IS 'name of the tool; unreadable for a call without one';
COMMENT ON COLUMN tool_users.n IS 'samples that call it [samples]';
COMMENT ON COLUMN tool_users.n_calls IS 'calls [calls]';

-- The panel: responses sampled once from the base, with their log-probability under every checkpoint.
CREATE OR REPLACE VIEW panel_logps AS
SELECT
    a.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, s.task, s.problem_id,
    s.sample_index,                     -- 0 … panel−1
    s.response_id, s.correct,
    r.logp_sum,                         -- nats, summed over n_tokens response tokens
    r.entropy_sum, r.n_tokens
FROM audit_samples AS s
JOIN current_audits AS a USING (audit_id)
JOIN series_checkpoints AS c ON c.series = a.series
JOIN response_logps AS r
    ON r.checkpoint_id = c.checkpoint_id
    AND r.problem_id = s.problem_id
    AND r.settings_id = a.settings_id
    AND r.response_id = s.response_id
WHERE s.role = 'panel' AND s.correct IS NOT NULL;
COMMENT ON VIEW panel_logps IS 'a panel response (sampled once from the base), with its log-probability under a checkpoint [needs checkpoints]';
COMMENT ON COLUMN panel_logps.sample_index IS '0, 1, … among the panel responses of its problem';

-- The first own samples of every checkpoint, with three log-probabilities: from the sampler, teacher-forced under the
-- checkpoint, and teacher-forced under the base.
CREATE OR REPLACE VIEW own_logps AS
SELECT
    s.series, s.checkpoint, s.step, s.is_base, s.checkpoint_id, s.task, s.problem_id, s.sample_index,
    s.response_id, s.correct, s.n_tokens,
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
WHERE NOT s.greedy AND s.sample_index < s.panel AND s.sample_index < s.n_first_round AND s.correct IS NOT NULL
  AND (own.logp_sum IS NOT NULL OR base.logp_sum IS NOT NULL);
COMMENT ON VIEW own_logps IS 'one of the first own samples of a checkpoint, with its log-probabilities [needs checkpoints]';
COMMENT ON COLUMN own_logps.sampler_logp_sum IS 'log-probability from the sampler [nats]';
COMMENT ON COLUMN own_logps.own_logp_sum IS 'log-probability teacher-forced under its own checkpoint; NULL if not computed [nats]';
COMMENT ON COLUMN own_logps.base_logp_sum IS 'log-probability teacher-forced under the base; NULL if not computed [nats]';

-- Panel responses teacher-forced twice under the same weights. The difference is the rounding error of a
-- log-probability.
CREATE OR REPLACE VIEW repeated_logps AS
SELECT
    a.series, c.checkpoint, c.step, c.checkpoint_id, q.problem_id, q.response_id, r.logp_sum,
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
COMMENT ON VIEW repeated_logps IS 'a panel response teacher-forced twice under the same weights, in batches of different shapes [needs checkpoints]';
COMMENT ON COLUMN repeated_logps.logp_sum IS 'log-probability of the first scoring [nats]';
COMMENT ON COLUMN repeated_logps.second_logp_sum IS 'log-probability of the second scoring [nats]';

-- ---------------------------------------------------------------- gradient kernels

-- Checkpoints for which a kernel was requested: its certificate, or why it is missing.
CREATE OR REPLACE VIEW kernel_runs AS
SELECT a.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, k.certificate, ak.why
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_kernels AS ak USING (audit_id, checkpoint_id)
LEFT JOIN kernels AS k USING (kernel_id);
COMMENT ON VIEW kernel_runs IS 'a checkpoint whose gradient kernel was requested [needs checkpoints, first series]';
COMMENT ON COLUMN kernel_runs.certificate IS 'relative residual of the random-sign test; NULL without a kernel [1]';
COMMENT ON COLUMN kernel_runs.why IS 'why there is no kernel; NULL if there is one';

-- Responses in the kernels, once per role. Roles:
-- panel  samples of the base, the same at every checkpoint
-- mode   enumerated correct responses, the same at every checkpoint
-- own    first own samples of the checkpoint, with duplicates; only if sampled at temperature 1 without top-p or top-k
-- batch  training responses between this checkpoint and the next; problems of the training set
CREATE OR REPLACE VIEW kernel_members AS
SELECT
    a.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, r.position, o.role, o.sample_index,
    coalesce(p.task, 'training') AS task,
    coalesce(p.meta ->> '$.group', p.task, 'training') AS related,  -- problems with the same name are related
    r.problem_id, r.response_id, o.correct, r.logp_sum, r.n_tokens
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_kernels AS ak USING (audit_id, checkpoint_id)
JOIN kernel_rows AS r USING (kernel_id)
JOIN kernel_roles AS o USING (kernel_id, position)
LEFT JOIN problems AS p USING (problem_id);
COMMENT ON VIEW kernel_members IS 'a response in a kernel; one row per role [needs checkpoints, first series]';
COMMENT ON COLUMN kernel_members.position IS 'row and column in the kernel, from 0';
COMMENT ON COLUMN kernel_members.role IS 'panel (of the base), mode (enumerated), own (sample of this checkpoint) or batch (of the trainer)';
COMMENT ON COLUMN kernel_members.sample_index IS '0, 1, … among the responses of its problem in this role';
COMMENT ON COLUMN kernel_members.task IS 'problem set of the problem; training for a response of a training batch';
COMMENT ON COLUMN kernel_members.related IS 'group of related problems: they have the same value here';

-- Upper triangles of the kernels, including the diagonal.
CREATE OR REPLACE VIEW kernel_pairs AS
SELECT a.series, c.checkpoint, c.step, c.checkpoint_id, v.row_position, v.column_position, v.value
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN audit_kernels AS ak USING (audit_id, checkpoint_id)
JOIN kernel_values AS v USING (kernel_id);
COMMENT ON VIEW kernel_pairs IS 'a pair of responses in a kernel, each pair once; a response is also paired with itself [needs checkpoints, first series]';
COMMENT ON COLUMN kernel_pairs.row_position IS 'position of the first response';
COMMENT ON COLUMN kernel_pairs.column_position IS 'position of the second response';
COMMENT ON COLUMN kernel_pairs.value IS 'inner product of the gradients of their log-probabilities [squared gradient norm]';

-- ---------------------------------------------------------------- findings and verdicts

-- Findings of the current audits, one row per number.
CREATE OR REPLACE VIEW findings AS
SELECT
    c.checkpoint, c.step, f.measure, f.scope, f.k, f.value, f.low, f.high, f.n, f.unit, f.why,
    f.interval_over, f.why_no_interval, a.series
FROM current_audits AS a
JOIN audit_findings AS f USING (audit_id)
JOIN series_checkpoints AS c
    ON c.series = a.series
    AND c.checkpoint_id = f.checkpoint_id;
COMMENT ON VIEW findings IS 'a result of a measure, or why it is unknown';
COMMENT ON COLUMN findings.measure IS 'name of the measure; `oversharp explain NAME` describes it';
COMMENT ON COLUMN findings.scope IS 'part of the problems or samples that the value describes; `all` is the whole problem set';
COMMENT ON COLUMN findings.k IS 'k of pass@k and similar measures; NULL for others [samples]';
COMMENT ON COLUMN findings.value IS 'the value; NULL if unknown, with the reason in `why` [see `unit`]';
COMMENT ON COLUMN findings.low IS 'lower end of the 95 % confidence interval; NULL without an interval [see `unit`]';
COMMENT ON COLUMN findings.high IS 'upper end of the 95 % confidence interval; NULL without an interval [see `unit`]';
COMMENT ON COLUMN findings.n IS 'number of problems, samples, tokens, … that the value uses [units of the measure]';
COMMENT ON COLUMN findings.unit IS 'unit of value, low and high';
COMMENT ON COLUMN findings.why IS 'why the value is unknown; NULL if it is known';
COMMENT ON COLUMN findings.interval_over IS 'resampling unit of the interval: problems or clusters; NULL without one';
COMMENT ON COLUMN findings.why_no_interval IS 'why there is no interval because problems are related; NULL otherwise';

-- Former names of measures, from `oversharp.diagnostics.measures.FORMER_NAMES`.
CREATE OR REPLACE VIEW renamed_measures AS
FROM (VALUES
    ('problems_gained', 'queries_gained'),
    ('problems_kept', 'queries_kept'),
    ('problems_lost', 'queries_lost'),
    ('problems_lost_exact', 'queries_lost_exact'),
    ('problems_over_sharpened', 'queries_over_sharpened')
) AS renamed (measure, formerly);
COMMENT ON VIEW renamed_measures IS 'a renamed measure; join with `findings` on measure to select rows by the former name';
COMMENT ON COLUMN renamed_measures.measure IS 'name of the measure';
COMMENT ON COLUMN renamed_measures.formerly IS 'former name';

-- Verdicts on all series.
CREATE OR REPLACE VIEW verdicts AS
SELECT
    a.series,
    v.document ->> '$.heading' AS heading,
    v.label,
    v.document ->> '$.attributes.where' AS place,
    v.document ->> '$.attributes.scope' AS scope,
    v.document ->> '$.attributes.pass_at_1' AS pass_at_1,
    v.document ->> '$.attributes.kind' AS kind,
    v.sentence, v.p_exact, v.p_population, v.p_minority, v.k_most, v.document
FROM current_audits AS a
JOIN audit_verdicts AS v USING (audit_id);
COMMENT ON VIEW verdicts IS 'the verdict on a series';
COMMENT ON COLUMN verdicts.heading IS 'coverage_lost, no_loss, not_shown or no_verdict';
COMMENT ON COLUMN verdicts.label IS 'the test that decided: over_sharpened, degraded, mode_collapse, no_loss, inconclusive, …';
COMMENT ON COLUMN verdicts.place IS 'where the loss is: window (all late checkpoints pooled) or single checkpoints';
COMMENT ON COLUMN verdicts.scope IS 'what the verdict is about: the population of the problems, or these problems';
COMMENT ON COLUMN verdicts.pass_at_1 IS 'up or down if the 95 % interval of the change of pass@1 excludes 0, else open';
COMMENT ON COLUMN verdicts.kind IS 'kind of a loss: whole problems, modes or diffuse; NULL without a loss';
COMMENT ON COLUMN verdicts.sentence IS 'the verdict in one sentence';
COMMENT ON COLUMN verdicts.p_exact IS 'p value of the null hypothesis "pass@k fell at no k" on these problems [probability]';
COMMENT ON COLUMN verdicts.p_population IS 'p value of the null hypothesis "pass@k fell at no k" on the population of these problems [probability]';
COMMENT ON COLUMN verdicts.p_minority IS 'p value of the null hypothesis "no correct minority mode was lost" on these problems [probability]';
COMMENT ON COLUMN verdicts.k_most IS 'largest k that the verdict covers; it starts at k = 1 [samples]';
COMMENT ON COLUMN verdicts.document IS 'the whole verdict: fields of `oversharp.diagnostics.verdict.record.Verdict`';

-- Tests of every verdict and their results. Verdicts of earlier versions have none.
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
    series, claim.name, claim."null" AS null_hypothesis, claim.scope, claim.p, claim.level, claim.holds,
    claim.size.value AS size, claim.size.low, claim.size.high, claim.why
FROM claims;
COMMENT ON VIEW verdict_claims IS 'a claim tested by a verdict';
COMMENT ON COLUMN verdict_claims.name IS 'name of the claim';
COMMENT ON COLUMN verdict_claims.null_hypothesis IS 'null hypothesis; the claim holds if it is rejected';
COMMENT ON COLUMN verdict_claims.scope IS 'problems that the claim is about';
COMMENT ON COLUMN verdict_claims.p IS 'p value of the null hypothesis; NULL if it was not tested [probability]';
COMMENT ON COLUMN verdict_claims.level IS 'significance level; the claim holds if p is at most this; NULL if it was not tested [probability]';
COMMENT ON COLUMN verdict_claims.holds IS 'whether the claim holds';
COMMENT ON COLUMN verdict_claims.size IS 'change of pass@k, or for `some problem lost` the share of problems [probability, or share]';
COMMENT ON COLUMN verdict_claims.low IS 'lower end of the interval of size; NULL without an interval [as size]';
COMMENT ON COLUMN verdict_claims.high IS 'upper end of the interval of size; NULL without an interval [as size]';
COMMENT ON COLUMN verdict_claims.why IS 'why the claim was not tested, or the assumption of the test; NULL otherwise';

-- Results of every verdict for each checkpoint after the base. Verdicts of earlier versions have none.
CREATE OR REPLACE VIEW checkpoint_verdicts AS
WITH steps AS (
    SELECT
        series,
        unnest(json_transform(document -> '$.steps', '[{
            "step": "INTEGER", "checkpoint": "VARCHAR", "lost": "BOOLEAN", "is_of_population": "BOOLEAN",
            "kept": "BOOLEAN", "k": "INTEGER", "change": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE",
            "cause": "VARCHAR", "why": "VARCHAR"
        }]')) AS entry
    FROM verdicts
),
left_out AS (
    SELECT
        series,
        unnest(json_transform(document -> '$.left_out', '[{
            "step": "INTEGER", "checkpoint": "VARCHAR", "why": "VARCHAR"
        }]')) AS entry
    FROM verdicts
)
SELECT series, entry.*
FROM steps
UNION ALL BY NAME
SELECT series, entry.step, entry.checkpoint, 'left out: ' || entry.why AS why
FROM left_out;
COMMENT ON VIEW checkpoint_verdicts IS 'a checkpoint after the base, with its result in the verdict';
COMMENT ON COLUMN checkpoint_verdicts.lost IS 'whether its pass@k on these problems is significantly below the base''s at some k; NULL if it was not tested';
COMMENT ON COLUMN checkpoint_verdicts.is_of_population IS 'whether the loss is also significant in the population of these problems; NULL if it was not tested';
COMMENT ON COLUMN checkpoint_verdicts.kept IS 'whether a drop of its pass@k of more than 2 points is ruled out at every k; NULL if it was not tested';
COMMENT ON COLUMN checkpoint_verdicts.k IS 'k at which the change is given [samples]';
COMMENT ON COLUMN checkpoint_verdicts.change IS 'its pass@k minus the base''s; NULL if unknown [probability]';
COMMENT ON COLUMN checkpoint_verdicts.low IS 'lower end of the interval of the change; NULL without an interval [probability]';
COMMENT ON COLUMN checkpoint_verdicts.high IS 'upper end of the interval of the change; NULL without an interval [probability]';
COMMENT ON COLUMN checkpoint_verdicts.cause IS 'explanation of a loss other than over-sharpening: format, guessing or unread; NULL if there is none or it was not examined';
COMMENT ON COLUMN checkpoint_verdicts.why IS 'why it has no result; NULL otherwise';

-- Recommendation of `oversharp ship` over all comparable series: the checkpoint to ship, and the trade-offs of the
-- others. The rows of a series are its own checkpoints and the base. Verdicts of earlier versions have none.
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
        }]')) AS entry
    FROM verdicts
)
SELECT
    s.series, c.step, c.checkpoint, s.entry.is_base, s.entry.temperature, s.entry.role, s.entry.may_be_best,
    s.entry.pass_at_1, s.entry.first.change, s.entry.first.low, s.entry.first.high, s.entry.worst.k AS worst_k,
    s.entry.worst.change AS worst_change, s.entry.worst.low AS worst_low, s.entry.worst.high AS worst_high,
    s.entry.loss_at_most, s.entry.out_by, s.entry.why,
    CASE WHEN k.kind <> 'recorded' THEN c.path END AS path  -- imported checkpoints have no weights
FROM steps AS s
JOIN series_checkpoints AS c
    ON c.series = s.series
    -- the base of several series occurs once, with the step and label of the first series
    AND CASE WHEN s.entry.is_base THEN c.is_base ELSE c.series = s.entry.series AND c.step = s.entry.step END
LEFT JOIN checkpoints AS k USING (checkpoint_id);
COMMENT ON VIEW shipping IS 'a checkpoint that `oversharp ship` compares, at the audit''s temperature or at that of a control';
COMMENT ON COLUMN shipping.temperature IS 'sampling temperature of a control; NULL for the audit''s own samples [temperature]';
COMMENT ON COLUMN shipping.role IS 'recommended, candidate, or out (not to be shipped); NULL if unknown';
COMMENT ON COLUMN shipping.may_be_best IS 'whether no candidate has a significantly higher pass@1; with 95 % confidence, the best is among the rows where this is true';
COMMENT ON COLUMN shipping.pass_at_1 IS 'its pass@1; NULL if unknown [probability]';
COMMENT ON COLUMN shipping.change IS 'its pass@1 minus the base''s; NULL for the base [probability]';
COMMENT ON COLUMN shipping.low IS 'lower end of its simultaneous 95 % band over all checkpoints and k [probability]';
COMMENT ON COLUMN shipping.high IS 'upper end of that band [probability]';
COMMENT ON COLUMN shipping.worst_k IS 'k at which its pass@k minus the base''s is lowest [samples]';
COMMENT ON COLUMN shipping.worst_change IS 'its pass@k minus the base''s at worst_k; NULL for the base [probability]';
COMMENT ON COLUMN shipping.worst_low IS 'lower end of the band at worst_k [probability]';
COMMENT ON COLUMN shipping.worst_high IS 'upper end of that band [probability]';
COMMENT ON COLUMN shipping.loss_at_most IS 'upper bound of the drop of its pass@k below the base, over all k; NULL for the base [probability]';
COMMENT ON COLUMN shipping.out_by IS 'criterion that excludes it: band, verdict, estimate, expected, reach or veto; NULL if it is not excluded';
COMMENT ON COLUMN shipping.why IS 'why it is excluded, or why its role is unknown; NULL otherwise';
COMMENT ON COLUMN shipping.path IS 'path of its weights when they were last read; NULL for imported samples';

-- Problems that were sampled again to confirm a change. They are confirmed if p_adjusted <= 0.05.
CREATE OR REPLACE VIEW confirmed_problems AS
SELECT
    a.series, c.checkpoint, c.step, f.problem_id, f.change,
    f.n_base, f.correct_base, f.n_late, f.correct_late, f.p, f.p_adjusted, f.p_adjusted <= 0.05 AS confirmed
FROM current_audits AS a
JOIN series_checkpoints AS c USING (series)
JOIN confirmations AS f USING (audit_id, checkpoint_id);
COMMENT ON VIEW confirmed_problems IS 'a seemingly lost or gained problem, sampled again at the base and at a late checkpoint';
COMMENT ON COLUMN confirmed_problems.checkpoint IS 'label of the late checkpoint';
COMMENT ON COLUMN confirmed_problems.step IS 'optimizer step of the late checkpoint [steps]';
COMMENT ON COLUMN confirmed_problems.change IS 'lost or gained, by the samples of the audit';
COMMENT ON COLUMN confirmed_problems.n_base IS 'number of new samples of the base [samples]';
COMMENT ON COLUMN confirmed_problems.correct_base IS 'number of correct ones among n_base [samples]';
COMMENT ON COLUMN confirmed_problems.n_late IS 'number of new samples of the late checkpoint [samples]';
COMMENT ON COLUMN confirmed_problems.correct_late IS 'number of correct ones among n_late [samples]';
COMMENT ON COLUMN confirmed_problems.p IS 'one-sided p value of Fisher''s exact test [probability]';
COMMENT ON COLUMN confirmed_problems.p_adjusted IS 'p value with Holm''s correction for all problems sampled again [probability]';
COMMENT ON COLUMN confirmed_problems.confirmed IS 'whether p_adjusted is at most 0.05';

-- ---------------------------------------------------------------- token by token
-- These views are temporary. Each connection creates them for the Parquet files next to the store, so store and files
-- can be moved. database.py registers the files as response_tokens(checkpoint_id, problem_id, settings_id, response_id,
-- token_logps, token_entropies).

COMMENT ON TABLE response_tokens IS 'a teacher-forced response under a checkpoint, token by token';
COMMENT ON COLUMN response_tokens.settings_id IS 'hash of the settings with the prompt''s template';

-- Panel responses under every checkpoint, token by token, in nats.
CREATE OR REPLACE TEMP VIEW panel_tokens AS
SELECT
    p.series, p.checkpoint, p.step, p.is_base, p.checkpoint_id, p.problem_id, p.sample_index, p.response_id,
    p.correct, t.token_logps, t.token_entropies
FROM panel_logps AS p
JOIN current_audits AS a USING (series)
JOIN response_tokens AS t
    ON t.checkpoint_id = p.checkpoint_id
    AND t.problem_id = p.problem_id
    AND t.settings_id = a.settings_id
    AND t.response_id = p.response_id;
COMMENT ON VIEW panel_tokens IS 'a panel response under a checkpoint, token by token [needs checkpoints, token files]';
COMMENT ON COLUMN panel_tokens.sample_index IS '0, 1, … among the panel responses of its problem';

-- Own samples of a checkpoint, scored by that checkpoint, token by token, in nats.
CREATE OR REPLACE TEMP VIEW own_tokens AS
SELECT
    s.series, s.checkpoint, s.step, s.is_base, s.checkpoint_id, s.problem_id, s.sample_index, s.response_id,
    t.token_logps, t.token_entropies
FROM own_samples AS s
JOIN response_tokens AS t USING (checkpoint_id, problem_id, settings_id, response_id)
WHERE NOT s.greedy AND s.sample_index < s.n_first_round
  -- only samples that were scored as own samples; others have scores because a mode or panel response has the same text
  AND (s.sample_index < s.panel OR (s.entropy_sum IS NULL AND s.sample_index < s.entropy_samples));
COMMENT ON VIEW own_tokens IS 'an own sample of a checkpoint, scored by that checkpoint, token by token [needs checkpoints, token files]';

-- Training responses between two checkpoints, scored by the later and by the earlier one, token by token.
CREATE OR REPLACE TEMP VIEW training_tokens AS
WITH pairs AS (
    SELECT
        series, checkpoint, step, checkpoint_id,
        lag(checkpoint_id) OVER (PARTITION BY series ORDER BY step) AS before_id
    FROM series_checkpoints
)
SELECT
    p.series, p.checkpoint, p.step, p.checkpoint_id, r.problem_id, r.response_id, r.correct, now.token_logps,
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
COMMENT ON VIEW training_tokens IS 'a response of a training batch, scored by the checkpoints after and before it, token by token [needs checkpoints, token files, first series, training prompts]';
COMMENT ON COLUMN training_tokens.problem_id IS 'hash of the training prompt';
COMMENT ON COLUMN training_tokens.token_logps IS 'log-probability of each token under the later checkpoint [nats]';
COMMENT ON COLUMN training_tokens.token_logps_before IS 'log-probability of each token under the earlier checkpoint [nats]';
