"""The measures of work see what they are to bound."""

import subprocess
import sys
import time

from work import lines_run, processor_seconds


def test_lines_are_counted_as_often_as_they_run():
    def pairs(count):
        for left in range(count):
            for right in range(count):
                left + right

    assert lines_run(lambda: pairs(100)) > 90 * lines_run(lambda: pairs(10))


def test_processor_time_has_that_of_children_and_none_of_waiting():
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    assert processor_seconds(lambda: subprocess.run([sys.executable, "-c", burn], check=True)) > 0.25
    assert processor_seconds(lambda: time.sleep(0.5)) < 0.25
