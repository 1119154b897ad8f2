package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkLog: there are no logs, or they have no event.
const checkLog refusal.Check = "audit-log"

// Log is one file of an audit log.
type Log struct {
	// Name names it in errors.
	Name string
	// Open returns the log from its beginning, uncompressed. It is called for each credential of a
	// chain: standard input cannot be given.
	Open func() (io.ReadCloser, error)
}

// Coverage is the extent of the logs.
type Coverage struct {
	// Events is how many events there are, of all stages.
	Events int64
	// Unread is how many lines could not be read: no event of audit.k8s.io/v1 in strict JSON (such as
	// the last line of a file that is being written), longer than 8 MiB, or nested deeper than 32
	// levels; bodies of requests and responses may be nested deeper, and have members twice. They were not searched.
	Unread int64
	// Unnamed is how many TokenRequests were granted whose events do not name the token, as by an
	// API server before release 1.30.
	Unnamed int64
	// First and Last are the times of the earliest and the latest event.
	First, Last time.Time
}

// add counts an event.
func (c *Coverage) add(e *event) {
	c.Events++
	if e.issues() && e.issued == "" {
		c.Unnamed++
	}
	e.widen(&c.First, &c.Last)
}

// maxLine is the most bytes of a line. An event at level Metadata has some 2,000, and at most six for
// each of the 1 MiB of request line and headers that kube-apiserver takes from a client.
const maxLine = 8 << 20

// scan calls each with the events of the lines that have a text, "" for all lines. A line with an
// escape may have any text. It returns how many lines could not be read.
func scan(ctx context.Context, logs []Log, has string, each func(*event)) (unread int64, err error) {
	if len(logs) == 0 {
		return 0, &refusal.Error{Check: checkLog, Got: "no logs", Want: "at least one"}
	}
	for _, l := range logs {
		err := recovered.Call(func() error {
			n, err := l.scan(ctx, []byte(has), each)
			unread += n
			return err
		})
		if err != nil {
			return unread, fmt.Errorf("audit log %s: %w", l.Name, err)
		}
	}
	return unread, nil
}

func (l *Log) scan(ctx context.Context, has []byte, each func(*event)) (unread int64, err error) {
	if l.Open == nil {
		return 0, refusal.Config("Open", "", "a function")
	}
	f, err := l.Open()
	if err != nil {
		return 0, err
	}
	if f == nil {
		return 0, refusal.Config("Open", "that returned no reader", "a reader or an error")
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := &lines{r: bufio.NewReaderSize(f, 64<<10)}
	for {
		if err := ctx.Err(); err != nil {
			return unread, err
		}
		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return unread, nil
		case errors.Is(err, bufio.ErrTooLong):
			unread++
			continue
		case err != nil:
			return unread, err
		case len(line) == 0, !bytes.Contains(line, has) && bytes.IndexByte(line, '\\') < 0:
			continue
		}
		events, err := parse(line)
		if err != nil {
			unread++
		}
		for i := range events {
			each(&events[i])
		}
	}
}

// lines reads lines of up to maxLine bytes.
type lines struct {
	r   *bufio.Reader
	buf []byte
}

// next returns the next line, which is valid until the next call, without the white space around it. It
// returns bufio.ErrTooLong after a longer line, and io.EOF after the last.
func (l *lines) next() ([]byte, error) {
	l.buf = l.buf[:0]
	for long := false; ; {
		part, err := l.r.ReadSlice('\n')
		if long = long || len(l.buf)+len(part) > maxLine; !long {
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || len(l.buf) == 0 && !long):
			return nil, err
		case long:
			return nil, bufio.ErrTooLong
		}
		return bytes.TrimSpace(l.buf), nil
	}
}
