package recovered_test

import (
	"fmt"

	"github.com/nodeattest/nodeattest/recovered"
)

// A fetcher from another module runs in a goroutine. Its panic is an error, and the process goes on.
func Example() {
	fetch := func() error { panic("no session") }

	err := <-recovered.Go(fetch)
	fmt.Println(err != nil)
	fmt.Println(<-recovered.Go(func() error { return nil }))
	// Output:
	// true
	// <nil>
}
