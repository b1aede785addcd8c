import threading

import torch

from training.profiling.sensors import Reading, SensorReadings, nvml_sensor, read_sensors


def test_means_are_over_all_readings_and_the_temperature_is_the_highest():
    recorded = SensorReadings()
    recorded.readings += [Reading(300, 50, 40), Reading(500, 100, 44), Reading(400, 90, 43)]
    assert recorded.means() == {"mean_power_w": 400, "mean_utilisation_percent": 80, "highest_temperature_c": 44}


def test_sensor_is_read_while_the_block_runs_and_no_longer():
    enough, count = threading.Event(), 0

    def read():
        nonlocal count
        count += 1
        if count == 3:
            enough.set()
        return Reading(100 * count, 50, 40)

    with read_sensors(read) as recorded:
        assert enough.wait(timeout=30)
    after = len(recorded.readings)
    assert after == count >= 3
    assert recorded.readings[:3] == [Reading(100, 50, 40), Reading(200, 50, 40), Reading(300, 50, 40)]
    assert not [thread for thread in threading.enumerate() if thread.name == "sensors"]


def test_without_a_gpu_there_is_nothing_to_read():
    assert nvml_sensor(torch.device("cpu")) is None
    with read_sensors(None) as recorded:
        pass
    assert recorded.means() == {}
