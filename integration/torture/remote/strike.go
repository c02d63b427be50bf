package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"ckptfs/integration/daemon"
)

// pause waits for up to a time, or until stop; false: that came.
func pause(rng *rand.Rand, most time.Duration, stop <-chan struct{}) bool {
	select {
	case <-stop:
		return false
	case <-time.After(time.Duration(rng.Int64N(int64(most)))):
		return true
	}
}

// strike kills a machine's daemon over and over, alone or with its holder.
func (m *machine) strike(rng *rand.Rand, stop <-chan struct{}) {
	for pause(rng, 10*time.Second, stop) {
		var err error
		if rng.IntN(2) == 0 {
			m.r.say("machine %d: kill -9 of the daemon", m.number)
			m.r.daemons.Add(1)
			m.r.ledger.mounting(m.number)
			err = m.KillDaemon()
		} else {
			m.r.say("machine %d: kill -9", m.number)
			m.r.holders.Add(1)
			if err = m.Kill9(); err == nil {
				time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
				err = m.mount()
			}
		}
		if err != nil {
			m.r.lose("machine %d does not come back: %v", m.number, err)
			return
		}
	}
}

// strikeEngine kills the object store over and over, which is away for a while.
func (r *run) strikeEngine(rng *rand.Rand, stop <-chan struct{}) {
	for pause(rng, 12*time.Second, stop) {
		r.say("kill -9 of the engine")
		r.engines.Add(1)
		r.engine.Kill()
		pause(rng, 3*time.Second, stop)
		if err := r.engine.Start(); err != nil {
			r.lose("the engine does not come back: %v", err)
			return
		}
		r.say("the engine is back")
	}
}

// runCommands runs commands beside the work, some of which are killed.
func (m *machine) runCommands(rng *rand.Rand, stop <-chan struct{}) {
	all := [][]string{{"pull"}, {"pull"}, {"pull"}, {"fetch"}, {"push"}, {"status"}, {"evict"},
		{"prune", "--grace", "0"}, {"prune", "--remote", "--grace", "0"}, {"remote", "conflicts"}}
	for pause(rng, 3*time.Second, stop) {
		args := all[rng.IntN(len(all))]
		if args[0] == "pull" && rng.IntN(3) > 0 {
			m.pull()
			continue
		}
		after := commandTime
		if rng.IntN(4) == 0 {
			after = time.Duration(1 + rng.Int64N(int64(time.Second)))
			m.r.commands.Add(1)
		}
		done := func() {}
		if args[0] == "pull" || args[0] == "fetch" {
			done = m.r.ledger.pulling(m.number)
		}
		o := m.r.command(after, append(append([]string{}, args...), m.Dir)...)
		done()
		m.judge(args[0], o)
		if len(args) > 1 && args[1] == "--remote" && o.code == 0 {
			m.r.collections.Add(1)
		}
	}
}

// copyStore copies a store that is at rest, and has both publish.
func (r *run) copyStore() error {
	m := r.machines[r.intN(len(r.machines))]
	r.say("machine %d: its store is copied", m.number)
	r.copies.Add(1)
	if err := m.Stop(); err != nil {
		return err
	}
	ghost := &machine{r: r, number: 1000 + r.rounds, Daemon: &daemon.Daemon{Bin: r.Bin,
		Store: m.Store + ".copy", Dir: m.Dir + ".copy", Log: m.Log + ".copy"}}
	if err := os.MkdirAll(ghost.Dir, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", m.Store, ghost.Store).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %v: %s", err, out)
	}
	defer os.RemoveAll(ghost.Store)
	r.ledger.copied(ghost.number)
	if err := m.mount(); err != nil {
		return err
	}
	if err := ghost.mount(); err != nil {
		return err
	}
	defer ghost.Clean()
	for _, one := range []*machine{ghost, m, ghost} {
		rng := r.fork()
		one.saveStep(rng)
		one.saveCommon(rng)
		if err := r.patiently(one.published); err != nil {
			return err
		}
	}
	ghost.lookAtLog()
	return ghost.Stop()
}

// published publishes everything.
func (m *machine) published() error {
	if !m.sync() {
		m.closeAgain()
		return fmt.Errorf("machine %d does not publish everything, though nothing is killed; see %s",
			m.number, filepath.Join(m.r.Dir, "run.log"))
	}
	return nil
}

// loseDisk takes a machine's store away, which was not asked to publish what it saved last, and gives it a
// clone.
func (r *run) loseDisk() error {
	m := r.machines[r.intN(len(r.machines))]
	rng := r.fork()
	m.saveStep(rng)
	m.saveLast(rng)
	m.saveCommon(rng)
	m.sync()
	m.saveStep(rng)
	m.saveCommon(rng)
	r.say("machine %d: its disk is lost", m.number)
	r.disks.Add(1)
	if err := m.Clean(); err != nil {
		return err
	}
	if err := os.RemoveAll(m.Store); err != nil {
		return err
	}
	r.ledger.lost(m.number)
	if err := m.begin(); err != nil {
		return err
	}
	return r.patiently(m.pulled)
}

// pulled pulls everything.
func (m *machine) pulled() error {
	if !m.pull() {
		return fmt.Errorf("machine %d does not pull everything, though nothing is killed; see %s",
			m.number, filepath.Join(m.r.Dir, "run.log"))
	}
	return nil
}
