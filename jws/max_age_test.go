package jws

import (
	"net/http"
	"testing"
	"time"
)

func TestMaxAge(t *testing.T) {
	for _, test := range []struct {
		lines []string // of Cache-Control
		age   string
		want  time.Duration
	}{
		{nil, "", unstatedAge},
		{[]string{""}, "", unstatedAge},
		{[]string{"public"}, "10", unstatedAge},
		{[]string{"public, max-age=3600"}, "", time.Hour},
		{[]string{"MAX-AGE=60"}, "", time.Minute},
		{[]string{`max-age="60"`}, "", time.Minute},
		{[]string{" , ,max-age=60 ,"}, "", time.Minute},
		{[]string{"max-age=60"}, "20", 40 * time.Second},
		{[]string{"max-age=60"}, "61", 0},
		{[]string{"max-age=60"}, "soon", time.Minute},
		{[]string{"max-age=60, max-age=30"}, "", 30 * time.Second},
		{[]string{"max-age=30", "max-age=60"}, "", 30 * time.Second},
		{[]string{"max-age=0"}, "", 0},
		{[]string{"max-age"}, "", 0},
		{[]string{"max-age="}, "", 0},
		{[]string{"max-age=-1"}, "", 0},
		{[]string{"max-age=1.5"}, "", 0},
		{[]string{"max-age=1h"}, "", 0},
		{[]string{"max-age=99999999999999999999999"}, "", 1 << 31 * time.Second},
		{[]string{"s-maxage=60"}, "", unstatedAge},
		{[]string{"max-age=60, no-store"}, "", 0},
		{[]string{"max-age=60", "No-Cache"}, "", 0},
		{[]string{`max-age=60, no-cache="Set-Cookie"`}, "", 0},
	} {
		header := http.Header{"Cache-Control": test.lines}
		if test.age != "" {
			header.Set("Age", test.age)
		}
		if got := maxAge(header); got != test.want {
			t.Errorf("%q, age %q: got %v, want %v", test.lines, test.age, got, test.want)
		}
	}
}

func FuzzMaxAge(f *testing.F) {
	f.Add("public, max-age=3600", "1")
	f.Add(`no-cache, max-age="0"`, "")
	f.Add("max-age=18446744073709551616", "-1")
	f.Fuzz(func(t *testing.T, line, age string) {
		got := maxAge(http.Header{"Cache-Control": {line}, "Age": {age}})
		if got < 0 || got > 1<<31*time.Second {
			t.Errorf("%q, %q: %v", line, age, got)
		}
	})
}
