-- Number of samples up to which each problem of a checkpoint is planned in an audit with a stopping rule, how many of
-- them are drawn, and how many of these are correct. Rounds end at first_round, 2 first_round, 4 first_round, … below the
-- cap, and at the cap. $rule replaces the audit's rule and numbers of samples; NULL keeps them.
WITH settings_drawn AS (
    SELECT
        c.checkpoint_id, a.settings_id,
        CASE WHEN c.is_base THEN coalesce($rule.n_base, a.n_base) ELSE coalesce($rule.n, a.n) END AS n_cap
    FROM audits AS a
    JOIN series_checkpoints AS c USING (series)
    WHERE a.audit_id = $audit_id
    UNION
    SELECT checkpoint_id, settings_id, n AS n_cap
    FROM audit_controls
    WHERE audit_id = $audit_id
),
cells AS (
    SELECT
        d.checkpoint_id, d.settings_id, ap.problem_id, d.n_cap,
        coalesce($rule.first_round, a.first_round) AS first_round, coalesce($rule.enough, a.enough) AS enough,
        coalesce(a.verifier, p.verifier) AS verifier
    FROM audits AS a
    JOIN audit_problems AS ap USING (audit_id)
    JOIN problems AS p USING (problem_id)
    CROSS JOIN settings_drawn AS d
    WHERE a.audit_id = $audit_id
      AND ($checkpoint_ids IS NULL OR list_contains($checkpoint_ids::VARCHAR[], d.checkpoint_id))
),
drawn AS (
    SELECT
        c.checkpoint_id, c.settings_id, c.problem_id, c.enough, g.correct,
        -- round in which the sample is drawn: 2, 4, 8, … times the first one for 1, 2 to 3, 4 to 7, …
        least(c.n_cap, CASE WHEN s.sample_index < c.first_round THEN c.first_round
            ELSE c.first_round::BIGINT << length(bin(s.sample_index // c.first_round)) END)::INTEGER AS n_round
    FROM cells AS c
    JOIN samples AS s
        ON s.checkpoint_id = c.checkpoint_id
        AND s.problem_id = c.problem_id
        AND s.settings_id = c.settings_id
        AND s.sample_index < c.n_cap
    LEFT JOIN grades AS g
        ON g.problem_id = s.problem_id
        AND g.response_id = s.response_id
        AND g.verifier = c.verifier
    WHERE NOT s.greedy
),
by_round AS (
    SELECT
        checkpoint_id, settings_id, problem_id, n_round, enough,
        sum(count(*)) OVER up_to AS n,
        sum(count(correct)) OVER up_to AS n_graded,
        sum(count(*) FILTER (correct)) OVER up_to AS n_correct
    FROM drawn
    GROUP BY checkpoint_id, settings_id, problem_id, n_round, enough
    WINDOW up_to AS (PARTITION BY checkpoint_id, settings_id, problem_id ORDER BY n_round)
),
reached AS (
    SELECT
        checkpoint_id, settings_id, problem_id,
        min(n_round) FILTER (n_graded = n_round AND n_correct >= enough) AS n_stop,
        max(n_round) FILTER (n_graded = n_round) AS n_done
    FROM by_round
    GROUP BY checkpoint_id, settings_id, problem_id
),
planned AS (
    SELECT
        c.checkpoint_id, c.settings_id, c.problem_id,
        coalesce(r.n_stop, least(c.n_cap, coalesce(2 * r.n_done, c.first_round))) AS n
    FROM cells AS c
    LEFT JOIN reached AS r USING (checkpoint_id, settings_id, problem_id)
)
SELECT
    w.checkpoint_id, w.settings_id, w.problem_id, w.n,
    coalesce(max(b.n), 0)::INTEGER AS n_drawn,
    coalesce(max(b.n_correct), 0)::INTEGER AS n_correct
FROM planned AS w
LEFT JOIN by_round AS b
    ON b.checkpoint_id = w.checkpoint_id
    AND b.settings_id = w.settings_id
    AND b.problem_id = w.problem_id
    AND b.n_round <= w.n
GROUP BY w.checkpoint_id, w.settings_id, w.problem_id, w.n
