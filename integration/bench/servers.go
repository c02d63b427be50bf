package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// servers lets several processes map one safetensors file, as inference servers do.
func (b *bench) servers() error {
	const many = 4
	type reply struct {
		Seconds  float64
		Pss, Rss int64
	}
	size := min(b.size, 300<<20)
	paths := map[bool]string{false: filepath.Join(b.plain, "served.safetensors"), true: filepath.Join(b.daemon.Dir, "served.safetensors")}
	if _, err := b.pythonRun("payload.py", fmt.Sprint(size), filepath.Join(b.plain, "served.pt"),
		paths[false]); err != nil {
		return err
	}
	if _, err := b.pythonRun("payload.py", fmt.Sprint(size), filepath.Join(b.daemon.Dir, "served.pt"),
		paths[true]); err != nil {
		return err
	}
	if err := b.sync(); err != nil {
		return err
	}
	var rows [][]string
	for _, how := range []string{"resident", "evicted, cold"} {
		var first, others, again pair
		var pss, rss, cpu sample
		for round := range b.rounds {
			for _, ours := range []bool{round%2 == 0, round%2 != 0} {
				if how != "resident" {
					if err := errors.Join(b.evictAll(), b.coolStore(), cool(paths[false])); err != nil {
						return err
					}
				}
				var talk []*conversation
				for range many {
					c, err := b.converse(filepath.Join("clients", "server.py"), paths[ours])
					if err != nil {
						return err
					}
					talk = append(talk, c)
				}
				pick := func(p *pair) *sample {
					if ours {
						return &p.ours
					}
					return &p.plain
				}
				var sum reply
				for i, c := range talk {
					var r reply
					if err := c.ask(&r, "load"); err != nil {
						return err
					}
					if i == 0 {
						pick(&first).add(r.Seconds)
					} else {
						pick(&others).add(r.Seconds)
					}
				}
				time.Sleep(2 * time.Second) // hydration, if there is one
				before := b.cpu()
				for _, c := range talk {
					var r reply
					if err := c.ask(&r, "again"); err != nil {
						return err
					}
					pick(&again).add(r.Seconds)
				}
				used := b.cpu() - before
				for _, c := range talk {
					var r reply
					if err := c.ask(&r, "pss"); err != nil {
						return err
					}
					sum.Pss += r.Pss
					sum.Rss += r.Rss
				}
				if ours {
					pss.add(float64(sum.Pss) / float64(size))
					rss.add(float64(sum.Rss) / float64(size))
					cpu.add(used.Seconds())
				}
				for _, c := range talk {
					if err := c.close(); err != nil {
						return err
					}
				}
			}
		}
		for _, r := range []struct {
			name string
			p    *pair
		}{{"first load", &first}, {"load of the others", &others}, {"reading all again", &again}} {
			rows = append(rows, []string{how + ", " + r.name, r.p.plain.text(), r.p.ours.text(), r.p.ratio()})
		}
		rows = append(rows, []string{how + ", memory for " + strconv.Itoa(many) + " mappings, of one file", "", pss.text(), ""},
			[]string{how + ", daemon's time for reading all again", "", cpu.text(), ""})
	}
	table(fmt.Sprintf("%d servers that map one safetensors file of %s, seconds", many, bytesText(size)), []string{"", "plain", "ckptfs", "ratio"}, rows)
	return nil
}

// evictAll drops every raw copy; what somebody holds yet is waited for.
func (b *bench) evictAll() error {
	var err error
	for range 100 {
		if _, err = b.daemon.CLI("evict", b.daemon.Dir); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// cpu is the processor time that the daemon has used.
func (b *bench) cpu() time.Duration { return cpuOf(b.daemon.PIDs()...) }

// cpuOf is the processor time that processes have used.
func cpuOf(pids ...int) (all time.Duration) {
	for _, pid := range pids {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest)
		for _, v := range f[min(11, len(f)):min(13, len(f))] { // utime, stime, in hundredths of a second
			n, _ := strconv.ParseInt(v, 10, 64)
			all += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return all
}
