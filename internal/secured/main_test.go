package secured

import (
	"os"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.MainWithWeir(m)) }
