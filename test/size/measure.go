package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is the cost of a program: processor time in seconds, and the largest resident memory in MB (VmHWM).
type usage struct {
	CPU  float64 `json:"cpuSeconds"`
	Peak float64 `json:"peakMB"`
}

// used returns the processor time of all processes of the program, and the peak of the one that runs.
func (p *program) used() usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid := p.cmd.Process.Pid
	u := usage{CPU: (p.before + p.spent()).Seconds()}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil { // it has ended
		return u
	}
	for line := range strings.Lines(string(text)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseFloat(strings.Fields(kib)[0], 64)
			u.Peak = n * 1024 / 1e6
		}
	}
	return u
}

// spent is the processor time of the last process, even if it has ended. The caller holds the lock.
func (p *program) spent() time.Duration {
	select {
	case <-p.done:
		return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	default:
		return processorTime(p.cmd.Process.Pid)
	}
}

// processorTime is that of a process, or 0 if it has ended.
func processorTime(pid int) (all time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// proc_pid_stat(5), after the name: state, parent, ..., utime and stime in ticks of 10 ms.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	for _, field := range fields[11:13] {
		ticks, _ := strconv.Atoi(field)
		all += time.Duration(ticks) * 10 * time.Millisecond
	}
	return all
}

// resetPeak has the peak begin anew (proc_pid_clear_refs(5)).
func (p *program) resetPeak() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0o200) // else the peak is of the whole life
}

// scrape returns the samples of metrics, by their names with labels.
func scrape(web *http.Client, url string) (map[string]float64, error) {
	answer, err := web.Get(url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, answer.Status)
	}
	samples := map[string]float64{}
	lines := bufio.NewScanner(io.LimitReader(answer.Body, 64<<20))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if value, err := strconv.ParseFloat(line[at+1:], 64); at > 0 && line[0] != '#' && err == nil {
			samples[line[:at]] = value
		}
	}
	return samples, lines.Err()
}

// A reading is the state of all counters at one time.
type reading struct {
	at                 time.Time
	requests, rejected float64 // that the API server has answered, and how many of them with status 429
	writes, bytes      float64 // that etcd has put or deleted, and written to its log
	server, manager    usage
	controllers        []usage
	database           usage
	got, ended         int
}

// read reads all counters.
func (r *run) read() (now reading) {
	c := r.c
	now.at = time.Now()
	r.c.eventually(func() error {
		of, err := scrape(c.http, c.url+"/metrics")
		if err != nil {
			return err
		}
		now.requests, now.rejected = 0, 0
		for name, value := range of {
			if strings.HasPrefix(name, "apiserver_request_total{") {
				now.requests += value
				if strings.Contains(name, `code="429"`) {
					now.rejected += value
				}
			}
		}
		return nil
	})
	stored, err := scrape(http.DefaultClient, c.etcd+"/metrics")
	c.check(err)
	now.writes = stored["etcd_mvcc_put_total"] + stored["etcd_mvcc_delete_total"]
	now.bytes = stored["etcd_disk_wal_write_bytes_total"]
	now.server, now.manager, now.database = c.server.used(), c.manager.used(), c.database.used()
	for _, p := range r.controllers {
		now.controllers = append(now.controllers, p.used())
	}
	now.got, now.ended = r.fleet.counts()
	return now
}
