"""Planted bugs: each is a change of the source text, and the one test that must notice it.

`tests/test_mutants.py` applies them one by one to a copy of the package. A bug whose text is no longer in the source
fails there too, so the list stays true. Bugs of this kind were in real use somewhere, or nearly got in here.
"""

from __future__ import annotations

from dataclasses import dataclass

EXACT = "tests/privacy/test_neighbours.py::"
ONE_VALUE = EXACT + "test_no_value_costs_more_than_its_owners_epsilon"
NEIGHBOURS, PRIVATE, AS_TEXT, MANY = (
    f"{ONE_VALUE}[{mix}-(0, 1)]" for mix in ("the usual", "all private", "as text", "many")
)
CELLS = EXACT + "test_cells_of_a_file_keep_the_same_promise_and_cannot_reach_their_neighbours"
BILLIONS = EXACT + "test_among_billions_of_people_no_integer_overflows_and_nobody_pays_more[(0, 1)]"
KEEPING = EXACT + "test_keeping_people_at_random_costs_nobody_more_than_their_epsilon[all private]"
GATE = "tests/checks/test_doctor.py::test_the_sampler_that_releases_use_passes"
REPLAY = "tests/privacy/test_replay.py::test_everything_public_is_the_same_for_every_value"
DATABASES, LEDGER, PEOPLE, PLAN, STATISTICS = (
    f"tests/{name}.py::"
    for name in (
        "sources/test_databases",
        "ledger/test_ledger",
        "sources/test_people",
        "core/test_plan",
        "privacy/test_statistics",
    )
)
ATTACKS = "tests/server/test_server_tampering.py::"
MEMBERS = "tests/ledger/test_ledger_tampering.py::"
MERGING, CLAIMS = "tests/tally/test_merging.py::", "tests/report/test_claims.py::"
MOVED = "test_rows_101_and_102_nobody_is_counted_in_a_cohort_to_which_no_event_brought_them"


@dataclass(frozen=True)
class Mutant:
    """A bug: `old` text becomes `new` in one file of the package; `killer` is the node id of the test that notices."""

    name: str
    file: str
    killer: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return the source with the bug in it; the old text must be there exactly once."""
        if text.count(self.old) != 1:
            raise LookupError(
                f"{self.file} has the text of mutant {self.name!r} {text.count(self.old)} times, not once"
            )
        return text.replace(self.old, self.new)


# fmt: off
MUTANTS = [
    # The noise scale, and the check that guards it
    Mutant("scale halved", "privacy/exact.py", NEIGHBOURS,
           "    return max(SMALLEST_SCALE, *map(_quotient_up, weight[close].tolist(), limit[close].tolist()))",
           "    return 0.5 * max(SMALLEST_SCALE, *map(_quotient_up, weight[close].tolist(), limit[close].tolist()))"),
    Mutant("scale 5 % low", "core/plan.py", NEIGHBOURS,
           "    scales = [max(scale_for(",
           "    scales = [0.95 * max(scale_for("),
    Mutant("scale of the least demanding level", "privacy/exact.py", NEIGHBOURS,
           "    return max(SMALLEST_SCALE, *map(_quotient_up, weight[close].tolist(), limit[close].tolist()))",
           "    return min(SMALLEST_SCALE, *map(_quotient_up, weight[close].tolist(), limit[close].tolist()))"),
    Mutant("scale rounded down", "privacy/exact.py", MANY,
           "else math.nextafter(nearest, math.inf)",
           "else nearest"),
    Mutant("epsilon rounded up", "privacy/exact.py", AS_TEXT,
           "    return (epsilon.view(np.int64) - moved).view(np.float64)",
           "    return epsilon * (1 + 0.1 * moved)"),
    Mutant("epsilon held to the nearest double of its text", "privacy/exact.py", AS_TEXT,
           "    return (epsilon.view(np.int64) - moved).view(np.float64)",
           "    return epsilon"),
    Mutant("weights rounded up behind the scale", "core/plan.py", NEIGHBOURS,
           "statistic, units, noise, shape.threshold)",
           "statistic, units + (units > 0), noise, shape.threshold)"),
    Mutant("a noise term ends one level early", "core/plan.py", PRIVATE,
           "NoiseTerm(max(scale, SMALLEST_SCALE), first, last)",
           "NoiseTerm(max(scale, SMALLEST_SCALE), first, last - 1)"),
    Mutant("the check allows 1 % more", "privacy/exact.py",
           PLAN + "test_a_plan_with_bad_noise_cannot_be_made[scale one ulp smaller]",
           "limits[part][bare[part]], term.scale)",
           "limits[part][bare[part]], term.scale * 1.01)"),
    Mutant("the sampler's own map is not asked", "privacy/release.py",
           EXACT + "test_nothing_is_drawn_when_the_samplers_own_privacy_map_disagrees[adpm]",
           "        if loss(cost, term.scale) > limit:",
           "        if loss(cost, term.scale) < 0:"),
    Mutant("a scale near 0 reaches the sampler", "privacy/exact.py",
           PLAN + "test_a_scale_that_no_sampler_should_see_is_refused_even_where_epsilon_would_allow_it",
           "        if not SMALLEST_SCALE <= term.scale <= LARGEST_SCALE:",
           "        if not 0 <= term.scale <= LARGEST_SCALE:"),
    Mutant("spend shown a hair too low", "core/plan.py",
           PLAN + "test_the_table_says_per_level_what_one_person_weighs_spends_and_keeps",
           "np.nextafter(self.costs[part] / term.scale, np.inf)",
           "np.nextafter(self.costs[part] / term.scale, 0)"),
    # What a value becomes, and what reaches the sampler
    Mutant("no clamp above", "core/domain.py", NEIGHBOURS,
           "            np.clip(values, self.lo, self.hi, out=out)",
           "            np.clip(values, self.lo, 1e6 * abs(self.hi), out=out)"),
    Mutant("NaN survives", "core/domain.py", NEIGHBOURS,
           "            np.copyto(out, GRID // 2, where=np.isnan(out, out=mask))",
           "            np.copyto(out, -(2.0**31), where=np.isnan(out, out=mask))"),
    Mutant("missing values count as the upper bound", "core/domain.py", NEIGHBOURS,
           "            np.copyto(out, GRID // 2,",
           "            np.copyto(out, GRID,"),
    Mutant("rows without a number are dropped", "sources/__init__.py", NEIGHBOURS,
           "            grouping.add(batch.epsilon, batch.values)",
           "            kept = ~np.isnan(np.asarray(batch.values, np.float64))\n"
           "            grouping.add(batch.epsilon[kept], batch.values[kept])"),
    Mutant("everybody is counted twice", "sources/__init__.py", NEIGHBOURS,
           "            grouping.add(batch.epsilon, batch.values)",
           "            grouping.add(batch.epsilon, batch.values)\n"
           "            grouping.add(batch.epsilon, batch.values)"),
    Mutant("the upper bound is taken from the data", "tally/groupby.py", NEIGHBOURS,
           "                self._interval.codes(values",
           "                low, high = self._interval.lo, self._interval.hi\n"
           "                most = float(np.nanquantile(np.clip(values, low, high), 0.6))\n"
           "                top = max(most, low + (high - low) / 8)\n"
           "                Interval(low, top).codes(values"),
    Mutant("the values of people with epsilon 0 are used", "tally/tally.py", NEIGHBOURS,
           "np.where(epsilon[:, None] > 0, sums[:, 1:], 0), rounded)",
           "sums[:, 1:], rounded)"),
    Mutant("sums belong to the next level", "privacy/release.py", NEIGHBOURS,
           "tally.table.total[part, 0], 0",
           "np.roll(tally.table.total, 1)[part, 0], 0"),
    Mutant("the sum is rounded to the nearest", "privacy/release.py", NEIGHBOURS,
           "    return whole // GRID",
           "    return (whole + GRID // 2) // GRID"),
    Mutant("the highest bits of a sum are lost", "privacy/release.py", BILLIONS,
           "for bits in (0, 16, 32, 48))",
           "for bits in (0, 16, 32))"),
    Mutant("the sum goes through a float", "privacy/release.py", BILLIONS,
           "    return whole // GRID",
           "    return int(float(whole) // GRID)"),
    Mutant("T + m(0) instead of m(T)", "privacy/release.py", NEIGHBOURS,
           "        answer += noisy(floored_sum(tally, plan, slice(term.first, term.last)), term.scale)",
           "        answer += floored_sum(tally, plan, slice(term.first, term.last)) + noisy(0, term.scale)"),
    Mutant("the lowest bits of the sum leave beside the noise", "privacy/release.py", NEIGHBOURS,
           "    answer += floored_sum(tally, plan, bare)",
           "    answer += floored_sum(tally, plan, bare) + tally.table.total.sum() % 2"),
    Mutant("a database adds nothing for a missing value", "sources/sql.py",
           DATABASES + "test_missing_values_count_as_the_midpoint_and_keep_their_weight[postgres]",
           "then {GRID} else {_MIDDLE} end",
           "then {GRID} end"),
    # The draw
    Mutant("noise 10 % narrow", "privacy/noise.py", GATE,
           "    return int(_sampler(scale)(total))",
           "    return int(_sampler(0.9 * scale)(total))"),
    Mutant("noise in steps of 2", "privacy/noise.py", GATE,
           "    return int(_sampler(scale)(total))",
           "    return 2 * int(_sampler(scale / 2)(total // 2))"),
    Mutant("noise cut off at 3 scales", "privacy/noise.py", GATE,
           "    return int(_sampler(scale)(total))",
           "    cut = int(3 * scale)\n"
           "    return max(total - cut, min(total + cut, int(_sampler(scale)(total))))"),
    Mutant("noise with one tail", "privacy/noise.py", GATE,
           "    return int(_sampler(scale)(total))",
           "    return total + abs(int(_sampler(scale)(0)))"),
    Mutant("a fixed seed", "privacy/noise.py", STATISTICS + "test_no_release_repeats_another_not_even_in_a_new_process",
           "    return int(_sampler(scale)(total))",
           "    return total + round(np.random.default_rng(1).laplace(0, scale))"),
    Mutant("releases are remembered", "privacy/noise.py",
           STATISTICS + "test_no_release_repeats_another_not_even_in_a_new_process",
           "def noisy(total: int, scale: float) -> int:",
           "@lru_cache(maxsize=64)\n"
           "def noisy(total: int, scale: float) -> int:"),
    Mutant("sampling divides by how many were kept", "privacy/release.py", KEEPING,
           "    expected = Fraction(weigh(plan.keep, plan.levels.count), KEEP_ONE)",
           "    expected = Fraction(max(1, int(np.count_nonzero(kept))))"),
    Mutant("people are kept a little too often", "privacy/sampling.py", KEEPING,
           "    keep = np.floor(np.clip(ratio, 0, 1) * _MARGIN * KEEP_ONE).astype(np.int64)",
           "    keep = np.ceil(np.clip(ratio * (2 - _MARGIN), 0, 1) * KEEP_ONE).astype(np.int64)"),
    Mutant("whoever is left out still adds half a weight", "privacy/release.py", KEEPING,
           "    answer = unit * (2 * total - int(np.count_nonzero(kept)) * GRID) // (2 * GRID)",
           "    answer = unit * (2 * total - int(np.count_nonzero(~kept)) * GRID) // (2 * GRID)"),
    # Public facts: levels, ids, groups, merging
    Mutant("1e400 means public", "core/domain.py",
           PLAN + "test_an_epsilon_that_is_not_0_positive_or_inf_is_refused_with_its_place",
           "    if math.isinf(value):\n"
           '        raise InputError(f"epsilon is too large for a number (got {shown}',
           "    if value < 0:\n"
           '        raise InputError(f"epsilon is too large for a number (got {shown}'),
    Mutant("levels are rounded up", "core/levels.py", PLAN + "test_rounding_keeps_twelve_bits_and_never_goes_up",
           "(epsilon.view(np.int64) >> 53 - BITS << 53 - BITS)",
           "(epsilon.view(np.int64) + 2**(53 - BITS) - 1 >> 53 - BITS << 53 - BITS)"),
    Mutant("merging adds the second tally twice", "tally/tally.py", BILLIONS,
           "        return Tally(merge([self.table, other.table]), self.interval,",
           "        return Tally(merge([self.table, other.table, other.table]), self.interval,"),
    Mutant("a copy of a tally counts as other people", "tally/tally.py",
           MERGING + "test_row_103_a_tally_or_a_copy_of_its_file_is_never_counted_twice",
           "        if self.identities & other.identities:",
           "        if self is other:"),
    Mutant("a tally that is loaded gets a new identity", "tally/tally.py",
           MERGING + "test_row_103_a_tally_or_a_copy_of_its_file_is_never_counted_twice",
           'tuple(map(str, fields["notes"])), identities)',
           'tuple(map(str, fields["notes"])))'),
    Mutant("a merged tally forgets the readings it comes from", "tally/tally.py",
           MERGING + "test_row_103_a_tally_or_a_copy_of_its_file_is_never_counted_twice",
           "        both = self.identities | other.identities",
           "        both = None"),
    Mutant("groups without ids claim that nobody is in two", "questions.py",
           CLAIMS + "test_row_104_only_a_column_of_ids_makes_parallel_composition_a_claim[no ids]",
           "checked=people.asked.person is not None)",
           "checked=True)"),
    Mutant("the same tally may be named twice", "cli/data.py", PEOPLE + "test_merging_refuses_what_it_cannot_know",
           "    if len({Path(name).resolve() for name in sources}) < len(sources):",
           "    if not sources:"),
    Mutant("ids are compared byte by byte", "sources/people.py",
           PEOPLE + "test_row_55_ids_are_exact_text_in_one_normal_form",
           '    ids = cells.str.normalize("NFC")',
           "    ids = cells"),
    Mutant("a person's rows are added, not averaged", "sources/people.py",
           PEOPLE + "test_one_person_moves_the_sum_by_at_most_one_code_however_many_rows_they_have",
           '    code = Interval.average(pl.col("code"), pl.col("count"))',
           '    code = pl.col("code")'),
    Mutant("groups of a private column", "questions.py",
           PEOPLE + "test_row_51_groups_need_a_column_that_is_declared_public",
           "    if by is not None and by not in public_columns:",
           "    if by is not None and by == people.asked.value:"),
    Mutant("a database adds a person's rows up", "sources/sql.py",
           "tests/test_contract.py::test_people_with_several_rows_and_groups_are_the_same_everywhere[postgres]",
           "(2 * sum(c) + count(*)) / (2 * count(*)) as c",
           "sum(c) as c"),
    # What nobody may be told
    Mutant("people without a value are left out of a file", "sources/delimited.py", REPLAY + "[csv]",
           'column.fill_null("") if column.has_nulls() else column for column in cells])',
           'column for column in cells]).drop_nulls()'),
    Mutant("a stray comma shifts the columns", "sources/delimited.py", CELLS,
           "        plain = np.diff(np.searchsorted(cuts, ends), prepend=0) == self.width - 1",
           "        plain = np.diff(np.searchsorted(cuts, ends), prepend=0) >= self.width - 1"),
    Mutant("the name of a tier is read as a number", "sources/columns.py",
           "tests/sources/test_files.py::test_a_tier_whose_name_is_a_number_is_that_tier_and_no_epsilon",
           "    if not request.tiers:\n",
           "    if request.form.decimal:\n"),
    Mutant("a message quotes a cell that may be a value", "sources/columns.py",
           "tests/sources/test_sources.py::test_an_epsilon_right_of_the_value_is_never_quoted",
           "request, quotes=odd is None)",
           "request)"),
    Mutant("an unforeseen error shows its message", "cli/__init__.py",
           "tests/cli/test_cli.py::test_an_unforeseen_error_withholds_its_message",
           "please report it (the message is withheld)",
           "please report it: {error}"),
    Mutant("a tally can be read by everybody", "files.py",
           "tests/privacy/test_metamorphic.py::test_a_saved_tally_is_for_its_owner_alone_and_says_so",
           "        Path(name).replace(target)",
           "        Path(name).chmod(0o644)\n"
           "        Path(name).replace(target)"),
    Mutant("a tally shows its sums", "tally/tally.py", REPLAY + "[tally]",
           "{self.levels!r}, sums=<private>)",
           "{self.levels!r}, sums={self.table.total.tolist()})"),
    Mutant("a release notes how many values were repaired", "questions.py", REPLAY + "[sampling]",
           "        values, levels = records(people, method)\n",
           "        values, levels = records(people, method)\n"
           "        import logging\n"
           "\n"
           '        logging.getLogger("hetdp").warning("%d values are missing", (values != values).sum())\n'),
    # The ledger
    Mutant("the ledger charges epsilon instead of the spend", "ledger/books.py",
           LEDGER + "test_everybody_is_charged_the_exact_spend_of_their_level_and_the_rest_stays_free[sqlite]",
           "        found[part] = [min(-(-cost * each // up), UNLIMITED) for cost in costs[part].tolist()]",
           "        found[part] = [budget_units(e) for e in plan.levels.epsilon[part].tolist()]"),
    Mutant("charges are rounded down", "ledger/books.py",
           LEDGER + "test_a_charge_covers_the_exact_spend_and_never_passes_what_is_left",
           "min(-(-cost * each // up), UNLIMITED)",
           "min(cost * each // up, UNLIMITED)"),
    Mutant("budgets are rounded up", "ledger/books.py", LEDGER + "test_a_budget_is_rounded_down_to_whole_units",
           "    units = math.floor(_decimal(cell, value) * UNIT)",
           "    units = math.ceil(_decimal(cell, value) * UNIT)"),
    Mutant("the database lets people pass their budget", "ledger/tables.py",
           LEDGER + "test_the_database_itself_keeps_what_happened[sqlite-"  # noqa: S608  the name of a test
           "UPDATE hetdp_cohort SET spent = budget + 1]",
           "CHECK (0 <= spent AND spent <= budget)",
           "CHECK (0 <= spent)"),
    Mutant("a commit may be lost with the power", "files.py", LEDGER + "test_every_commit_syncs",
           '"synchronous = FULL"',
           '"synchronous = NORMAL"'),
    Mutant("values are read before the charge", "ledger/__init__.py",
           LEDGER + "test_values_are_read_only_after_the_charge_is_committed[sqlite]",
           "        read.check()\n",
           "        read.check()\n"
           "        list(read.batches())\n"),
    Mutant("a sealed answer opens at another epsilon", "server/access.py",
           ATTACKS + "test_row_100_a_sealed_answer_opens_for_its_own_person_study_and_level_alone",
           'f"{person} {study} {epsilon.hex()}"',
           'f"{person} {study}"'),
    Mutant("rows of a study are taken as the database has them", "server/store.py",
           ATTACKS + "test_row_100_no_answer_is_used_at_more_than_its_person_chose_last"
           "[sqlite-lowered_and_put_back-while it runs]",
           '        if known != {row.id: self.register.sign("person", *row) for row in rows}:',
           "        if known.keys() != {row.id for row in rows}:"),
    Mutant("a session is whose it says", "server/access.py",
           ATTACKS + "test_row_100_a_forged_session_is_nobodys[sqlite]",
           "    if not same(_proof(register, kind, said), proof):\n",
           "    if not proof or not said:\n"),
    Mutant("a session goes on after it has ended", "server/access.py",
           ATTACKS + "test_row_100_a_session_that_the_first_answer_ended_does_not_come_back[sqlite]",
           "    current = int(epoch) == register.epoch(person) or int(number) == register.kept(person)\n",
           "    current = True\n"),
    Mutant("a study is what the database says", "server/studies.py",
           ATTACKS + "test_row_100_no_answer_is_used_at_more_than_its_person_chose_last"
           "[sqlite-choices_changed_for_one_request-while it runs]",
           '    return Study.of(transaction.believed("study", _row(transaction, study)))\n',
           "    return Study.of(_row(transaction, study))\n"),
    Mutant("a wave that could not be stored is drawn again", "ledger/charge.py",
           ATTACKS + "test_row_100_a_wave_has_one_number_also_if_the_database_refuses_to_store_it",
           "        keeper.keep(number)\n",
           "        ...\n"),
    Mutant("a charge is carried out as the database shows it", "ledger/charge.py",
           MEMBERS + "test_row_101_a_charge_that_is_not_in_the_history_is_not_carried_out[sqlite]",
           "        if event == charged:\n",
           "        if event.seq == charged.seq:\n"),
    Mutant("the charged request holds one limit for all", "server/publish.py",
           ATTACKS + "test_row_100_each_defence_stops_a_charge_that_no_longer_fits_by_itself[register and levels]",
           "people=allowed,",
           "people=dict.fromkeys(allowed, max(allowed.values())),"),
    Mutant("levels are not compared before answers are opened", "server/publish.py",
           ATTACKS + "test_row_100_each_defence_stops_a_charge_that_no_longer_fits_by_itself[register and request]",
           "            if not 0 <= at < len(spends) or spends[at] > self.allowed.get(person, -1):\n",
           "            if not 0 <= at < len(spends):\n"),
    Mutant("a level below zero counts as public", "privacy/exact.py",
           PLAN + "test_a_level_that_is_no_epsilon_is_refused_by_the_exact_check",
           "    if not (epsilon >= 0).all():  # NaN too\n",
           "    if not units.size:\n"),
    Mutant("waves forget what those before have used", "server/studies.py",
           ATTACKS + "test_row_100_all_waves_stay_within_an_epsilon_that_was_lowered_in_between",
           "    left = units if units == UNLIMITED else max(units - used, 0)\n",
           "    left = units\n"),
    Mutant("a change that is in doubt is left so", "server/store.py",
           ATTACKS + "test_row_100_a_change_whose_commit_failed_is_decided_at_once[undone]",
           "            self.register.decide(came)\n",
           "            pass\n"),
    Mutant("answers that are gone stay in the write-ahead log", "server/store.py",
           "tests/server/test_server_security.py::test_an_answer_that_is_gone_is_nowhere_in_the_files_of_the_server[withdrawn]",
           "            if transaction.scrub and self._emptying is None:\n",
           "            if not transaction:\n"),
    Mutant("a resumed release hands out a second draw", "ledger/charge.py",
           LEDGER + "test_of_two_who_resume_one_id_the_first_writer_wins_and_both_give_its_result[sqlite]",
           '    found = find(connection, str(charged.release), "result")\n'
           "    if found is not None:\n",
           '    found = find(connection, str(charged.release), "result")\n'
           "    if found is not None and not unclamped:\n"),
    Mutant("an id may stand for another request", "ledger/charge.py",
           LEDGER + "test_the_same_id_with_another_request_is_an_error",
           "    if books.canonical(before) != books.canonical(now):",
           "    if not before:"),
    Mutant("an old copy of the ledger is taken", "ledger/store.py",
           LEDGER + "test_an_old_copy_that_was_put_back_is_refused",
           "    if known.seq > head.seq:",
           "    if known.seq > head.seq + 10**6:"),
    Mutant("an epsilon that is no number passes for a level", "tally/kernels.py",
           "tests/tally/test_groupby.py::test_no_pattern_of_bits_that_is_no_epsilon_passes_for_one",
           "    return level if 0 <= level <= INFINITY else np.int64(-1)",
           "    return level if 0 <= level else np.int64(-1)"),
    Mutant("a result leaves before the head outside is on disk", "ledger/charge.py",
           LEDGER + "test_a_result_is_handed_out_only_when_the_head_outside_is_on_disk",
           "        store.flush_head()\n",
           "        pass\n"),
    Mutant("balances that somebody else changed are not looked at", "ledger/store.py",
           LEDGER + "test_a_ledger_that_was_changed_behind_its_back_is_refused_before_values_are_read",
           '        if written is None or connection.info.get("hetdp_written") != written:',
           '        if "hetdp_written" not in connection.info:'),
    Mutant("results are shown that the head outside does not cover", "ledger/__init__.py",
           LEDGER + "test_results_are_shown_only_when_the_head_outside_covers_them",
           "        self._store.flush_head()  # it has results\n",
           ""),
    Mutant("a result of somebody else is handed out under the old head", "ledger/store.py",
           LEDGER + "test_a_result_that_another_process_stored_is_handed_out_only_when_the_head_covers_it",
           "            write_head(self.head_file, self.state.head, sync=True)\n",
           "            write_head(self.head_file, GENESIS, sync=True)\n"),
    Mutant("a trigger of somebody else is left alone", "ledger/store.py",
           LEDGER + "test_a_trigger_of_somebody_else_is_refused_before_values_are_read",
           "    if foreign:",
           "    if foreign[1:]:"),
    Mutant("a changed result is handed out again", "ledger/store.py",
           LEDGER + "test_a_release_that_was_changed_behind_an_open_ledger_is_not_handed_out",
           '            return next(checked([event], _head_at(connection, event.seq - 1), "the ledger"))',
           "            return event"),
    Mutant("a second interrupt keeps the ledger's lock", "ledger/store.py",
           LEDGER + "test_a_second_interrupt_does_not_leave_the_lock_behind",
           "            with self.engine.begin() as connection:\n"
           "                for statement in _BEGIN[connection.dialect.name, writes]:\n"
           "                    run(connection, statement)\n"
           "                return work(connection)\n",
           "            connection = self.engine.connect()\n"
           "            begun = connection.begin()\n"
           "            run(connection, *_BEGIN[connection.dialect.name, writes])\n"
           "            done = work(connection)\n"
           "            begun.commit()\n"
           "            connection.close()\n"
           "            return done\n"),
    Mutant("a charge takes the lock late", "ledger/store.py",
           LEDGER + "test_whoever_changes_a_ledger_has_its_lock_before_reading_and_whoever_reads_does_not",
           '("BEGIN IMMEDIATE",)',
           '("BEGIN",)'),
    Mutant("a failing insert tells the ids", "ledger/store.py",
           LEDGER + "test_a_connection_lost_while_people_are_written_is_said_in_words",
           "            cause = _cause(error.orig)\n",
           '            raise LedgerError(f"{self.name} cannot be used: {_cause(error.orig)}") from error\n'),
    Mutant("a charge that a trigger swallowed is committed", "ledger/store.py",
           LEDGER + "test_a_trigger_that_keeps_balances_from_being_written_is_noticed_before_the_commit",
           ".rowcount != rows:",
           ".rowcount > rows:"),
    Mutant("people are counted where any row puts them", "ledger/charge.py",
           MEMBERS + MOVED + "[sqlite-swapped-while it is open]",
           "charged_people(connection, state, charged, store.name)",
           "members(connection, charged.seq)"),
    Mutant("the ids that came to a cohort are not compared", "ledger/charge.py",
           MEMBERS + MOVED + "[sqlite-renamed-while it is open]",
           " or move_facts(there, came) != told:",
           ' or move_facts(there, came)["moves"] != told["moves"]:'),
    Mutant("an event under another measure is read as pure epsilon", "ledger/books.py",
           LEDGER + "test_an_event_that_a_newer_hetdp_wrote_is_refused[sqlite-measure]",
           "if found.get(name, known) != known}",
           'if name != "measure" and found.get(name, known) != known}'),
    Mutant("kernels multiply by what is not exact", "tally/kernels.py",
           "tests/tally/test_groupby.py::test_python_numpy_and_the_kernels_give_the_same_integers",
           "    found = (x - lo) / width * GRID + 0.5",
           "    found = (x - lo) * (GRID / width) + 0.5"),
    Mutant("levels are rounded although they are few enough", "tally/kernels.py",
           "tests/tally/test_groupby.py::test_a_look_at_the_first_people_never_rounds_levels_that_fit",
           "np.count_nonzero(marks) <= self.limit:",
           "np.count_nonzero(marks) <= self.limit // 2:"),
    Mutant("a tally of another statistic is read as a mean", "tally/tally.py",
           "tests/privacy/test_metamorphic.py::test_a_tally_of_another_version_is_refused",
           "if unknown or not fields.keys() <= _KNOWN:",
           "if not fields.keys() <= _KNOWN:"),
    Mutant("a missing value in an engine is the upper bound", "sources/frames.py",
           "tests/sources/test_frames.py::test_the_adversarial_table_gives_the_oracles_tally_from_every_frame[DuckDB]",
           ".when((x >= hi) & (x <= self._number(math.inf)))",
           ".when(~(x < hi))"),
    Mutant("an epsilon that begins with a zero is read as a number", "sources/columns.py",
           "tests/sources/test_sources.py::"
           "test_a_text_is_the_same_epsilon_in_a_list_and_in_a_file_or_is_refused_in_both",
           'text.str.starts_with("0") & ~text.str.starts_with("0.")',
           'text.str.starts_with("00")'),
]
# fmt: on
