package authenticator

import (
	"context"
	"io/fs"
	"os"
	"slices"
	"time"
)

// lookPause is how often the plugin looks whether another process has written a certificate or the state while it
// waits: each of the kubelet's requests waits with it, for at most a minute. A look costs two to four system calls. A
// notification of the kernel (inotify) would miss the writes of another machine to a network file system, and is not
// needed: a missed write is found at the end of the pause.
const lookPause = 10 * time.Millisecond

// sleep waits for a time. It returns earlier, with the error of ctx, if ctx ends. The plugin's sleep ends as soon as
// another process, such as the daemon, has written the client certificate or the result of its attempt, and the
// daemon's as soon as the control plane has changed the request that it denied.
func (v *snapshot) sleep(ctx context.Context, pause time.Duration) error {
	end := time.NewTimer(pause)
	defer end.Stop()
	var look <-chan time.Time
	if v.by.plugin {
		ticker := time.NewTicker(lookPause)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case err := <-v.changed:
			if v.changed = nil; err == nil {
				v.hurry()
				return nil
			}
		case <-look:
			if !slices.EqualFunc(v.files, v.a.stat(), sameFile) {
				return nil
			}
		}
	}
}

// stat returns the files that the plugin waits for: nil for a missing one.
func (a *Authenticator) stat() (all []fs.FileInfo) {
	for _, folder := range a.folders() {
		for _, name := range []string{ClientFile, stateFile} {
			info, _ := os.Lstat(folder.Path(name)) // as good as missing if it cannot be read
			all = append(all, info)
		}
	}
	return all
}

// sameFile reports whether a file was not written in between. Each write makes a file anew.
func sameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
